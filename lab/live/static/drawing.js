// Layout and drawing of the canvas with requests over time and the charts below it, and of the one beside it.

const STRIP = 30;

Object.assign(View.prototype, {
  layout(width) {
    const { config, store } = this;
    const capacity = rowCapacity(config, store);
    const room = { 1: 300, 2: 180 }[config.runs.length] || 130;
    const pitch = Math.max(2.5, Math.min(12, Math.floor((2 * room) / capacity) / 2));
    const [x, w] = [GUTTER, width - GUTTER - 10];
    let y = 26;
    const lanes = config.runs.map(() => {
      const box = { x, y, w, h: capacity * pitch, pitch, capacity, strip: STRIP };
      y += box.h + STRIP + 38;
      return box;
    });
    const axis = { x, y: y - 32, w };
    y += 20;
    const charts = (this.knowsPeak() ? [56, 40, 40, 40] : [56, 40, 40]).map((h) => {
      const box = { x, y, w, h };
      y += h + 24;
      return box;
    });
    return { lanes, axis, charts, height: y - 12, width };
  },

  draw(themeChanged = false) {
    const began = performance.now();
    if (themeChanged) this.theme = readTheme(this.root);
    const width = this.canvas.parentElement.clientWidth;
    if (width < 50) return;
    const { store, config, theme } = this;
    const plan = (this.plan = this.layout(width));
    const pen = new Pen(this.canvas, theme);
    pen.begin(width, plan.height);
    const [from, to] = this.window();
    const box = plan.lanes[0];
    const scale = { from, to, left: box.x, right: box.x + box.w, x: (t) => box.x + ((t - from) / (to - from)) * box.w };
    scale.t = (px) => from + ((px - box.x) / box.w) * (to - from);
    this.scale = scale;
    this.shown = plan.lanes.map((place, index) => {
      const lane = this.laneShown(index);
      this.laneTitle(pen, index, place);
      const rows = drawLane(pen, store, index, lane, place, scale, theme);
      drawStrip(pen, store, index, lane, place, scale, theme);
      return rows;
    });
    if (store.head.state === "ready") pen.text(pen.fit(config.invitation, box.w - 20, 14), box.x + box.w / 2, box.y + box.h / 2, { align: "center", size: 14, color: theme.soft, halo: theme.background });
    drawTimeGrid(pen, [...plan.lanes, ...plan.charts], scale, theme);
    drawTimeAxis(pen, plan.axis, scale, theme, `time (s, ${config.measured ? "measured" : "simulated"})`);
    this.drawCharts(pen, plan, scale);
    this.drawScrub(pen, plan, scale);
    if (this.cursor) this.drawCursor(pen, plan, scale);
    if (themeChanged || performance.now() - (this.sideAt || 0) > 300 || !BUSY.includes(store.head.state)) this.drawSide();
    this.drawBlocks();
    (this.drawn ||= []).push(performance.now() - began);
    this.drawn = this.drawn.slice(-100);
  },

  // The window glides to where it should be instead of jumping.
  window() {
    const past = this.pastShown();
    if (past) return (this.domain = [past.from, Math.max(past.to, past.from + 1e-6)]);
    const { scroll, expected } = this.config;
    const [from, to] = timeWindow(this.store, scroll, expected);
    const before = this.domain && this.store.run === this.domainRun ? this.domain : [from, to];
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches || scroll;
    const glide = (a, b) => (still || Math.abs(b - a) < 0.01 * (to - from) ? b : a + 0.4 * (b - a));
    this.domain = [glide(before[0], from), glide(before[1], to)];
    this.domainRun = this.store.run;
    if (this.domain[1] !== to) setTimeout(() => this.draw(), 50);
    return this.domain;
  },

  laneTitle(pen, index, box) {
    const { config, store, theme } = this;
    const run = config.runs[index];
    const lane = store.lanes[index];
    const y = box.y - 13;
    pen.ctx.beginPath();
    pen.ctx.arc(box.x + 5, y, 5, 0, 2 * Math.PI);
    pen.ctx.fillStyle = run.color;
    pen.ctx.fill();
    const words = this.laneWords(index, lane);
    pen.text(words, box.x + box.w, y, { size: 11, align: "right", color: theme.soft });
    const name = pen.fitName(run.name, box.w - pen.measure(words, 11) - 40, 13, 600);
    pen.text(name, box.x + 16, y, { size: 13, weight: 600 });
    const left = box.x + 24 + pen.measure(name, 13, 600);
    const room = box.x + box.w - pen.measure(words, 11) - 14 - left;
    pen.text(pen.fit(run.spec === run.name ? "" : run.spec, room, 11), left, y, { size: 11, color: theme.soft });
  },

  laneWords(index, lane) {
    const busy = BUSY.includes(this.store.head.state);
    if (!lane.begun) return busy ? "runs next, on the same requests" : "";
    if (this.pastShown()) return this.scrub.lane === index ? `around step ${this.scrub.index}` : "";
    const { running, waiting } = this.counts(index);
    return lane.done ? `done after ${lane.now.toFixed(1)} s` : `${running} running · ${waiting} waiting`;
  },

  counts(index) {
    const lane = this.store.lanes[index];
    let [running, waiting, known] = [0, 0, lane.rows.size];
    for (const row of lane.rows.values()) {
      const waits = row.state === "waiting" || row.state === "preempted";
      const joins = waits && this.store.inFlight(index, row.id);
      running += row.state === "running" || Boolean(joins);
      waiting += waits && !joins;
    }
    const last = lane.steps[lane.steps.length - 1];
    if (last && lane.numbers.arrived > known) waiting = last[10]; // more wait than are on the page
    return { running, waiting };
  },

  drawCharts(pen, plan, scale) {
    const { store, config, theme } = this;
    const colored = (points, i, extra) => ({ points, color: config.runs[i].color, ...extra });
    const width = Math.max(...store.lanes.map((lane) => lane.series.width));
    const smooth = Math.max(1, Math.round((config.measured ? 2 : (scale.to - scale.from) / 12) / width));
    const average = plainNumber(Math.round(1000 * smooth * width) / 1000);
    const tokens = store.lanes.map((lane, i) => colored(seriesPoints(lane, "tokens", smooth), i));
    drawLines(pen, "Output tokens per second", `mean of the last ${average} s`, tokens, plan.charts[0], scale, theme);
    const exact = store.lanes.every((lane) => !lane.begun || lane.numbers.arrived <= lane.rows.size);
    const waiting = store.lanes.map((lane, i) => colored(exact ? waitingPoints(store, i) : seriesPoints(lane, "waiting"), i));
    drawLines(pen, "Waiting requests", "", waiting, plan.charts[1], scale, theme);
    const [title, unit, usage] = this.usageLines(smooth);
    drawLines(pen, title, unit, usage, plan.charts[2], scale, theme, 100);
    if (plan.charts[3]) drawLines(pen, "Share of the peak", this.peakWords(), this.peakLines(smooth), plan.charts[3], scale, theme);
  },

  drawSide() {
    const { store, config, theme } = this;
    const width = this.side.parentElement.clientWidth;
    if (width < 50) return;
    this.sideAt = performance.now();
    const pen = new Pen(this.side, theme);
    const box = { x: 40, y: 44, w: width - 56, h: 100 };
    const gaps = { ...box, y: box.y + box.h + 76 };
    const work = { x: 6, y: gaps.y + gaps.h + 52, w: width - 22 };
    pen.begin(width, work.y + 34 + 42 * config.runs.length);
    const curves = (name) => store.lanes.map((lane, i) => {
      const { slo, [`${name}_p50`]: p50, [`${name}_p95`]: p95 } = lane.numbers;
      return { values: lane[name], color: config.runs[i].color, p50, p95, share: slo?.[name] };
    });
    const words = { title: "Time to first token", none: "no request has finished yet", limit: config.slo.ttft };
    drawCdf(pen, words, curves("ttft"), box, theme);
    const itl = { title: "Inter-token latency", none: "no request has finished yet", limit: config.slo.itl };
    drawCdf(pen, itl, curves("itl"), gaps, theme);
    drawWork(pen, store, work, theme);
    this.side.title = config.runs.map((run) => run.name).filter((name) => name.length > 12).join("\n"); // they may be cut short
  },
});

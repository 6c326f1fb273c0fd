// Layout and drawing of the two canvases, and what lies under the mouse.

const STRIP = 30;

Object.assign(View.prototype, {
  layout(width) {
    const { config, store } = this;
    const capacity = rowCapacity(config, store);
    const room = config.runs.length > 2 ? 130 : 180;
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
    const charts = [56, 40, 40].map((h) => {
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
    this.shown = plan.lanes.map((lane, index) => {
      this.laneTitle(pen, index, lane);
      const rows = drawLane(pen, store, index, lane, scale, theme);
      drawStrip(pen, store, index, lane, scale, theme);
      return rows;
    });
    if (store.head.state === "ready") pen.text(config.invitation, box.x + box.w / 2, box.y + box.h / 2, { align: "center", size: 14, color: theme.soft, halo: theme.background });
    drawTimeGrid(pen, [...plan.lanes, ...plan.charts], scale, theme);
    drawTimeAxis(pen, plan.axis, scale, theme, `time (s, ${config.measured ? "measured" : "simulated"})`);
    this.drawCharts(pen, plan, scale);
    if (this.cursor) this.drawCursor(pen, plan, scale);
    this.drawSide();
    (this.drawn ||= []).push(performance.now() - began);
    this.drawn = this.drawn.slice(-100);
  },

  // The window glides to where it should be instead of jumping.
  window() {
    const [from, to] = timeWindow(this.store, this.config.endless, this.config.expected);
    const before = this.domain && this.store.run === this.domainRun ? this.domain : [from, to];
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches || this.config.endless;
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
    pen.text(run.name, box.x + 16, y, { size: 13, weight: 600 });
    const detail = run.spec === run.name ? "" : run.spec;
    pen.text(detail, box.x + 24 + pen.measure(run.name, 13, 600), y, { size: 11, color: theme.soft });
    const { running, waiting } = this.counts(index);
    const busy = BUSY.includes(store.head.state);
    const words = !lane.begun ? (busy ? "runs next, on the same requests" : "") : lane.done ? `done after ${lane.now.toFixed(1)} s` : `${running} running · ${waiting} waiting`;
    pen.text(words, box.x + box.w, y, { size: 11, align: "right", color: theme.soft });
  },

  counts(index) {
    let [running, waiting] = [0, 0];
    for (const row of this.store.lanes[index].rows.values()) {
      const waits = row.state === "waiting" || row.state === "preempted";
      const joins = waits && this.store.inFlight(index, row.id);
      running += row.state === "running" || Boolean(joins);
      waiting += waits && !joins;
    }
    return { running, waiting };
  },

  drawCharts(pen, plan, scale) {
    const { store, config, theme } = this;
    const lines = (name, smooth) => store.lanes.map((lane, i) => ({ points: seriesPoints(lane, name, smooth), color: config.runs[i].color }));
    const width = Math.max(...store.lanes.map((lane) => lane.series.width));
    const smooth = Math.max(1, Math.round((config.measured ? 2 : (scale.to - scale.from) / 12) / width));
    const average = plainNumber(Math.round(1000 * smooth * width) / 1000);
    drawLines(pen, "Output tokens per second", `mean of the last ${average} s`, lines("tokens", smooth), plan.charts[0], scale, theme);
    const waiting = store.lanes.map((lane, i) => ({ points: waitingPoints(store, i), color: config.runs[i].color }));
    drawLines(pen, "Waiting requests", "", waiting, plan.charts[1], scale, theme);
    const [title, unit, usage] = this.usageLines(smooth);
    drawLines(pen, title, unit, usage, plan.charts[2], scale, theme, 100);
  },

  usageLines(smooth) {
    const { store, config } = this;
    if (!config.measured) {
      const busy = store.lanes.map((lane, i) => ({
        points: seriesPoints(lane, "busy", smooth).map(([t, v]) => [t, 100 * Math.min(1, v)]), color: config.runs[i].color }));
      return ["Engine busy", "% of simulated time with a step under way", busy];
    }
    const sources = Object.assign({}, ...store.lanes.map((lane) => lane.usage.sources));
    const name = sources.gpu0 ? "gpu0" : "process";
    const series = store.lanes.map((lane, i) => {
      const column = Object.keys(lane.usage.sources).indexOf(name) + 1;
      return { points: lane.usage.points.map((point) => [point[0], point[column]]), color: config.runs[i].color };
    });
    const flops = store.lanes.map((lane) => lane.numbers.flops_per_s).filter(Boolean).pop();
    const work = flops ? `; the model computes ${(flops / 1e9).toFixed(flops < 1e10 ? 1 : 0)} GFLOP/s` : "";
    const text = sources[name] ? `%, ${sources[name][1]}${work}` : store.head.notes[0] || "%";
    return [name === "gpu0" ? "GPU utilisation" : "CPU utilisation", text, series];
  },

  drawSide() {
    const { store, config, theme } = this;
    const width = this.side.parentElement.clientWidth;
    if (width < 50) return;
    const pen = new Pen(this.side, theme);
    const box = { x: 40, y: 44, w: width - 56, h: 168 };
    const work = { x: 6, y: box.y + box.h + 62, w: width - 22 };
    pen.begin(width, work.y + 40 + 42 * config.runs.length);
    const curves = store.lanes.map((lane, i) => ({ values: lane.ttft, color: config.runs[i].color, p50: lane.numbers.ttft_p50, p95: lane.numbers.ttft_p95 }));
    drawCdf(pen, "Time to first token", curves, box, theme);
    drawWork(pen, store, work, theme);
  },

  // -- what is under the mouse, or where the arrow keys went -----------------------------------------------
  drawCursor(pen, plan, scale) {
    const { lane, step, row } = this.cursor;
    const { ctx } = pen;
    const box = plan.lanes[lane];
    if (step) {
      const x = scale.x(step[1]);
      ctx.strokeStyle = this.theme.ink;
      ctx.lineWidth = 1.25;
      ctx.strokeRect(x, box.y - 1, Math.max(1.5, scale.x(step[2]) - x), box.h + box.strip + 6);
    }
    const place = row ? this.shown[lane].findIndex((r) => r.id === row) : -1;
    if (place >= 0) {
      ctx.fillStyle = alpha(this.theme.ink, 0.1);
      ctx.fillRect(box.x, box.y + place * box.pitch, box.w, box.pitch - 1);
    }
  },

  point(event) {
    const rect = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - rect.left, event.clientY - rect.top];
    const lane = this.plan.lanes.findIndex((box) => y >= box.y && y <= box.y + box.h + box.strip + 4);
    if (lane < 0 || x < GUTTER) return this.leave();
    const box = this.plan.lanes[lane];
    const t = this.scale.t(x);
    const step = this.store.lanes[lane].steps.find((s) => s[1] <= t && t <= s[2]) || null;
    const row = this.shown[lane][Math.floor((y - box.y) / box.pitch)];
    this.cursor = { lane, step, row: row && row.arrival <= t ? row.id : null };
    this.showTip(x, y);
    this.draw();
  },

  leave() {
    if (!this.cursor) return;
    this.cursor = null;
    this.tip.hidden = true;
    this.draw();
  },

  showTip(x, y) {
    const { lane, step, row } = this.cursor;
    const lines = [];
    const request = row != null ? this.store.lanes[lane].rows.get(row) : null;
    if (request) {
      lines.push(make("b", {}, `request ${this.nameOf(request)}`));
      lines.push(make("div", {}, `${request.prompt} prompt tokens, ${request.output} of at most ${request.max} output tokens`));
      if (request.first != null) lines.push(make("div", {}, `first token after ${seconds(request.first - request.arrival)}`));
    }
    if (step) {
      const [index, start, end, prefill, decode, wasted, computed, padded] = step;
      lines.push(make("b", {}, `step ${index}, ${seconds(end - start)}`));
      const rows = [[prefill, "prompt"], [decode, "decode"], [wasted, "finished"]].filter(([n]) => n).map(([n, word]) => `${n} ${word}`);
      lines.push(make("div", {}, `${prefill + decode + wasted} rows: ${rows.join(", ")}`));
      lines.push(make("div", {}, `${computed} tokens computed${padded ? `, ${padded} of padding` : ""}`));
      lines.push(make("div", {}, `${step[10]} waiting afterwards, ${step[11]} blocks in use`));
    }
    this.tip.hidden = !lines.length;
    this.tip.replaceChildren(...lines);
    const flip = x > this.plan.width - 250;
    Object.assign(this.tip.style, { left: flip ? "" : `${x + 14}px`, right: flip ? `${this.plan.width - x + 14}px` : "", top: `${y + 14}px` });
  },

  nameOf(request) {
    if (request.hand) return "sent by hand";
    const sample = Math.floor(request.id / 2 ** 32);
    return `${(request.id % 2 ** 32) + 1}${sample ? `, sample ${sample + 1}` : ""}`;
  },

  key(event) {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (event.key === "Enter") return this.pick();
    if (!moves[event.key]) return;
    event.preventDefault();
    const [dx, dy] = moves[event.key];
    const start = { lane: this.store.head.active, step: null, row: null };
    const cursor = this.cursor || start;
    const { steps } = this.store.lanes[cursor.lane];
    let place = cursor.step ? steps.findIndex((s) => s[0] === cursor.step[0]) : steps.length;
    place = Math.max(0, Math.min(steps.length - 1, place + dx * (event.shiftKey ? 10 : 1)));
    let { lane } = cursor;
    let index = this.shown[lane].findIndex((r) => r.id === cursor.row) + dy;
    if (index < 0 && dy < 0 && lane > 0) index = this.shown[(lane -= 1)].length - 1;
    if (index >= this.shown[lane].length && lane + 1 < this.shown.length) [lane, index] = [lane + 1, 0];
    const row = this.shown[lane][Math.max(0, Math.min(this.shown[lane].length - 1, index))];
    this.cursor = { lane, step: this.store.lanes[lane].steps[place] || null, row: row ? row.id : null };
    this.draw();
    const box = this.plan.lanes[lane];
    const at = this.shown[lane].findIndex((r) => r.id === this.cursor.row);
    this.showTip(this.cursor.step ? this.scale.x(this.cursor.step[2]) : box.x, box.y + Math.max(0, at) * box.pitch);
    this.twin.textContent = [...this.tip.children].map((line) => line.textContent).join(". ");
  },
});

// Small charts: lines over the shared time axis, latencies so far, and where the work went.

class Pen {
  constructor(canvas, theme) {
    this.canvas = canvas;
    this.ctx = canvas.getContext("2d");
    this.theme = theme;
    this.ratio = window.devicePixelRatio || 1;
  }

  begin(width, height) {
    const [w, h] = [Math.round(width * this.ratio), Math.round(height * this.ratio)];
    if (this.canvas.width !== w || this.canvas.height !== h) {
      Object.assign(this.canvas, { width: w, height: h });
      this.canvas.style.height = `${height}px`;
    }
    this.ctx.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    this.ctx.clearRect(0, 0, width, height);
    this.ctx.textBaseline = "middle";
  }

  font(size, weight = 400) {
    this.ctx.font = `${weight} ${size}px ${this.theme.font}`;
  }

  measure(text, size, weight) {
    this.font(size, weight);
    return this.ctx.measureText(text).width;
  }

  text(text, x, y, { color, size = 11, weight = 400, align = "left", turn = false, halo = null } = {}) {
    const { ctx } = this;
    this.font(size, weight);
    ctx.textAlign = turn ? "center" : align;
    ctx.fillStyle = color || this.theme.ink;
    if (turn) {
      ctx.save();
      ctx.translate(x + size / 2, y);
      ctx.rotate(-Math.PI / 2);
      ctx.fillText(text, 0, 0);
      ctx.restore();
      return;
    }
    if (halo) {
      ctx.save();
      ctx.setLineDash([]);
      ctx.lineWidth = 3;
      ctx.lineJoin = "round";
      ctx.strokeStyle = halo;
      ctx.strokeText(text, x, y);
      ctx.restore();
    }
    ctx.fillText(text, x, y);
  }

  panel(x, y, w, h) {
    this.ctx.fillStyle = this.theme.panel;
    this.ctx.fillRect(x, y, w, h);
  }

  line(points, color, width = 1.75, dash = []) {
    const { ctx } = this;
    if (points.length < 2) return;
    ctx.save();
    ctx.beginPath();
    points.forEach(([x, y], i) => (i ? ctx.lineTo(x, y) : ctx.moveTo(x, y)));
    ctx.setLineDash(dash);
    ctx.lineWidth = width;
    ctx.lineJoin = "round";
    ctx.strokeStyle = color;
    ctx.stroke();
    ctx.restore();
  }
}

function drawTimeAxis(pen, box, scale, theme, label) {
  const { ctx } = pen;
  const unit = scale.to - scale.from < 0.5 ? 1000 : 1;
  for (const t of ticks(scale.from, scale.to, box.w / 90)) {
    const x = Math.round(scale.x(t)) + 0.5;
    ctx.fillStyle = theme.line;
    ctx.fillRect(x - 0.5, box.y, 1, 4);
    pen.text(plainNumber(t * unit), x, box.y + 11, { align: "center", color: theme.soft, size: 11 });
  }
  pen.text(label.replace("(s", unit === 1000 ? "(ms" : "(s"), box.x + box.w, box.y + 25, { align: "right", color: theme.soft, size: 11 });
}

function drawTimeGrid(pen, boxes, scale, theme) {
  for (const t of ticks(scale.from, scale.to, (scale.right - scale.left) / 90)) {
    const x = Math.round(scale.x(t));
    pen.ctx.fillStyle = theme.faint;
    for (const box of boxes) pen.ctx.fillRect(x, box.y, 1, box.h);
  }
}

// Lines over time. `series` is [{points: [[t, value]], color, dash}]; the y axis starts at 0.
function drawLines(pen, title, unit, series, box, scale, theme, top = 0) {
  const { ctx } = pen;
  const high = top || niceAbove(Math.max(1, 1.05 * Math.max(0, ...series.flatMap((s) => s.points.map((p) => p[1] || 0)))));
  const y = (value) => box.y + box.h - (value / high) * (box.h - 2);
  pen.panel(box.x, box.y, box.w, box.h);
  for (const t of [0, high / 2, high]) {
    ctx.fillStyle = theme.faint;
    ctx.fillRect(box.x, Math.round(y(t)), box.w, 1);
    if (t !== high / 2) pen.text(plainNumber(t), box.x - 6, y(t) + (t ? 5 : -4), { align: "right", color: theme.soft, size: 10 });
  }
  pen.text(title, box.x, box.y - 8, { size: 11, weight: 600 });
  pen.text(unit, box.x + pen.measure(title, 11, 600) + 6, box.y - 8, { size: 11, color: theme.soft });
  ctx.save();
  ctx.beginPath();
  ctx.rect(box.x, box.y - 1, box.w, box.h + 2);
  ctx.clip();
  for (const { points, color, dash } of series) {
    const drawn = points.filter((p) => p[1] != null).map(([t, value]) => [scale.x(t), y(value)]);
    if (drawn.length > 1) {
      ctx.beginPath();
      drawn.forEach(([px, py], i) => (i ? ctx.lineTo(px, py) : ctx.moveTo(px, py)));
      ctx.lineTo(drawn[drawn.length - 1][0], y(0));
      ctx.lineTo(drawn[0][0], y(0));
      ctx.fillStyle = alpha(color, 0.1);
      ctx.fill();
    }
    pen.line(drawn, color, 1.75, dash || []);
    const end = drawn[drawn.length - 1];
    if (end) {
      ctx.beginPath();
      ctx.arc(end[0], end[1], 2.4, 0, 2 * Math.PI);
      ctx.fillStyle = color;
      ctx.fill();
    }
  }
  ctx.restore();
}

// A column of a lane's series as points; `smooth` bins are averaged.
function seriesPoints(lane, name, smooth = 1) {
  const values = lane.series[name] || [];
  const width = lane.series.width;
  const points = [];
  let sum = 0;
  values.forEach((value, i) => {
    sum += value - (i >= smooth ? values[i - smooth] : 0);
    points.push([Math.min((i + 1) * width, lane.now), sum / Math.min(i + 1, smooth)]);
  });
  return points;
}

// How many requests wait, exactly: a staircase from their bars. Reads only what is on the screen.
function waitingPoints(store, index) {
  const lane = store.lanes[index];
  const { kinds } = store.config;
  const waits = kinds.map((kind) => kind.name === "queue" || kind.name === "preempted");
  const changes = [];
  for (const row of lane.rows.values()) {
    for (const [code, start, end] of store.barsOf(index, row)) if (waits[code]) changes.push([start, 1], [end, -1]);
  }
  changes.sort((a, b) => a[0] - b[0]);
  const points = lane.begun ? [[0, 0]] : [];
  let count = 0;
  for (const [time, change] of changes.filter(([time]) => time < lane.now)) {
    points.push([time, count], [time, (count += change)]);
  }
  if (lane.begun) points.push([lane.now, count]);
  return points;
}

function drawAxesFrame(pen, box, theme) {
  pen.panel(box.x, box.y, box.w, box.h);
  pen.ctx.fillStyle = theme.line;
  pen.ctx.fillRect(box.x, box.y + box.h, box.w, 1);
}

// Cumulative share of requests over latency, with p50 and p95 marked.
function drawCdf(pen, title, curves, box, theme) {
  const { ctx } = pen;
  const longest = Math.max(0, ...curves.map((c) => c.values[c.values.length - 1] || 0));
  const high = niceAbove(longest * 1.02 || 1);
  const x = (value) => box.x + (value / high) * box.w;
  const y = (share) => box.y + box.h - share * box.h;
  pen.text(title, box.x - 34, box.y - 22, { size: 12, weight: 600 });
  pen.text("share of requests so far, p50 and p95 marked", box.x - 34, box.y - 8, { size: 10, color: theme.soft });
  drawAxesFrame(pen, box, theme);
  for (const share of [0, 0.5, 0.95]) {
    ctx.fillStyle = theme.faint;
    ctx.fillRect(box.x, Math.round(y(share)), box.w, 1);
    pen.text(share ? `p${share * 100}` : "0", box.x - 6, y(share) + (share ? 0 : -3), { align: "right", color: theme.soft, size: 10 });
  }
  const unit = high < 0.5 ? 1000 : 1;
  for (const t of ticks(0, high, 4)) {
    pen.text(plainNumber(t * unit), x(t), box.y + box.h + 11, { align: "center", color: theme.soft, size: 10 });
  }
  pen.text(`time to first token (${unit === 1000 ? "ms" : "s"})`, box.x + box.w, box.y + box.h + 25, { align: "right", color: theme.soft, size: 10 });
  if (!longest) pen.text("no first token yet", box.x + box.w / 2, box.y + box.h / 2, { align: "center", color: theme.soft, size: 11, halo: theme.background });
  for (const { values, color, p50, p95 } of curves) {
    if (!values.length) continue;
    const points = [[x(0), y(0)]];
    values.forEach((value, i) => {
      points.push([x(value), y(i / values.length)], [x(value), y((i + 1) / values.length)]);
    });
    pen.line(points, color, 2.25);
    for (const [share, value] of [[0.5, p50], [0.95, p95]]) {
      if (value == null) continue;
      ctx.beginPath();
      ctx.arc(x(value), y(share), 4, 0, 2 * Math.PI);
      ctx.fillStyle = color;
      ctx.fill();
      ctx.lineWidth = 1.5;
      ctx.strokeStyle = theme.background;
      ctx.stroke();
    }
  }
}

// One bar per policy on a common scale: tokens of use, then tokens thrown away.
function drawWork(pen, store, box, theme) {
  const { ctx, ratio } = pen;
  const { config } = store;
  const names = ["prefill", "decode", "padding", "wasted"];
  const total = (lane) => names.reduce((sum, name) => sum + lane.work[name], 0);
  const high = Math.max(1, ...store.lanes.map(total));
  pen.text("Where the work went", box.x, box.y, { size: 12, weight: 600 });
  pen.text("tokens computed", box.x, box.y + 14, { size: 10, color: theme.soft });
  store.lanes.forEach((lane, index) => {
    const y = box.y + 34 + index * 42;
    const useful = lane.work.prefill + lane.work.decode;
    const waste = lane.work.padding + lane.work.wasted;
    pen.text(config.runs[index].name, box.x, y, { size: 11, weight: 600 });
    const share = useful + waste ? Math.round((100 * waste) / (useful + waste)) : 0;
    const wasted = waste ? `${share}% wasted` : "none wasted";
    let note = useful + waste ? `${plainNumber(useful)} useful, ${wasted}` : "";
    if (pen.measure(config.runs[index].name, 11, 600) + pen.measure(note, 11) + 12 > box.w) note = wasted;
    pen.text(note, box.x + box.w, y, { size: 11, align: "right", color: theme.soft });
    pen.panel(box.x, y + 9, box.w, 15);
    let left = box.x;
    for (const name of names) {
      const width = (lane.work[name] / high) * box.w;
      const kind = config.kinds.find((entry) => entry.name === name);
      ctx.fillStyle = kind.hatched ? hatch(ctx, kind.color, ratio) : kind.color;
      ctx.fillRect(left, y + 9, width, 15);
      left += width;
    }
  });
}

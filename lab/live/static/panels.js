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

  // As much of the text as fits.
  fit(text, room, size) {
    if (this.measure(text, size) <= room) return text;
    let length = text.length;
    while (length > 3 && this.measure(`${text.slice(0, length)}…`, size) > room) length -= 1;
    return length > 3 ? `${text.slice(0, length)}…` : "";
  }

  // A name that is too long keeps its beginning and its end, which tell policies apart.
  fitName(name, room, size, weight) {
    if (this.measure(name, size, weight) <= room) return name;
    let length = name.length - 1;
    const cut = () => `${name.slice(0, Math.ceil(length / 2))}…${name.slice(name.length - Math.floor(length / 2))}`;
    while (length > 3 && this.measure(cut(), size, weight) > room) length -= 1;
    return length > 3 ? cut() : "";
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
  const after = pen.measure(title, 11, 600) + 6;
  pen.text(pen.fit(unit, box.w - after, 11), box.x + after, box.y - 8, { size: 11, color: theme.soft });
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

// Requests × time, one lane per policy on the same time axis, and below each lane the batch of every step.

const GUTTER = 46;
const NICE = [1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80];

function niceAbove(value) {
  for (let scale = 1e-3; ; scale *= 10) {
    for (const step of NICE) if (step * scale >= value) return step * scale;
  }
}

function ticks(low, high, wanted) {
  const rough = (high - low) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(rough || 1));
  const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= rough) || power;
  const found = [];
  for (let t = Math.ceil(low / step - 1e-9) * step; t <= high + step * 1e-6; t += step) found.push(t);
  return found.map((t) => Math.round(t / step) * step);
}

function seconds(value) {
  if (value == null) return "–";
  if (value < 0.0995) return `${(value * 1000).toFixed(value < 0.00995 ? 1 : 0)} ms`;
  return value < 9.95 ? `${value.toFixed(2)} s` : `${value.toFixed(1)} s`;
}

function plainNumber(value) {
  return Number(value.toPrecision(6)).toLocaleString("en-US", { maximumFractionDigits: 6 });
}

// The time window all panels share. Finite runs grow in nice steps; endless ones scroll.
function timeWindow(store, scroll, expected) {
  const now = Math.max(0, ...store.lanes.map((lane) => lane.now));
  if (!scroll) return [0, niceAbove(Math.max(expected * 1.1, now * 1.03, 1))];
  const active = store.lanes[store.head.active] || store.lanes[0];
  const end = Math.max(30, active.now * 1.0);
  return [end - 30, end];
}

const ALIVE = ["waiting", "running", "preempted"];

// Rows in order of arrival. Where they are too many, those at the end of the queue and the longest finished leave.
function visibleRows(lane, config, from, capacity) {
  let rows = [...lane.rows.values()].sort((a, b) => a.arrival - b.arrival || a.id - b.id);
  if (!config.scroll) return rows;
  if (lane.focus != null) return aroundFocus(rows, lane.focus, capacity);
  rows = rows.filter((row) => row.since >= from || ALIVE.includes(row.state));
  let extra = rows.length - capacity;
  const waiting = rows.filter((row) => row.state === "waiting");
  const hidden = new Set(waiting.slice(Math.max(6, waiting.length - Math.max(0, extra))));
  rows = rows.filter((row) => !hidden.has(row));
  while ((extra = rows.length - capacity) > 0) {
    const old = rows.findIndex((row) => !ALIVE.includes(row.state));
    rows.splice(Math.max(0, old), 1);
  }
  return rows;
}

// Of a stretch of the past: those there at the step looked at, then those next to them.
function aroundFocus(rows, time, capacity) {
  const away = (row) => (row.arrival > time ? row.arrival - time : ALIVE.includes(row.state) || row.since >= time ? 0 : time - row.since);
  const kept = new Set([...rows].sort((a, b) => away(a) - away(b)).slice(0, capacity));
  return rows.filter((row) => kept.has(row));
}

function rowCapacity(config, store) {
  if (config.scroll) return 28;
  return Math.max(config.requests, ...store.lanes.map((lane) => lane.rows.size), 4);
}

// `lane` is the store's, or a stretch of its past.
function drawLane(pen, store, index, lane, box, scale, theme) {
  const { ctx } = pen;
  const { config } = store;
  const rows = visibleRows(lane, config, scale.from, box.capacity);
  pen.panel(box.x, box.y, box.w, box.h);
  ctx.save();
  ctx.beginPath();
  ctx.rect(box.x, box.y - 1, box.w, box.h + 2);
  ctx.clip();
  const bars = (thin) => rows.forEach((row, place) => drawRow(pen, store, index, lane, row, box.y + place * box.pitch, box.pitch, scale, theme, thin));
  bars(false);
  drawStepEdges(ctx, lane, box, scale, theme);
  bars(true);
  drawFirstTokens(ctx, rows, box, scale, theme);
  ctx.restore();
  drawMarks(pen, lane, box, scale, theme);
  if (lane.begun && !lane.done) drawNow(pen, lane.now, box, scale, config.runs[index].color);
  pen.text("request", 4, box.y + box.h / 2, { color: theme.soft, size: 10, turn: true });
  const every = ticks(0, box.capacity, Math.max(2, box.h / 44)).filter((t) => t > 0 && t <= box.capacity);
  for (const t of config.scroll ? [] : every) { // ids, of those that are there
    const id = rows[t] ? rows[t].id : t;
    if (t < box.capacity && id < 1000000) pen.text(String(id), box.x - 6, box.y + (t + 0.5) * box.pitch, { align: "right", color: theme.soft, size: 10 });
  }
  return rows;
}

function drawRow(pen, store, index, lane, row, y, pitch, scale, theme, thin) {
  const { kinds } = store.config;
  for (const bar of store.barsOf(index, row, lane)) {
    if (kinds[bar[0]].thin !== thin) continue;
    pen.ctx.globalAlpha = bar[6] ? 0.45 : 1; // a step under way is a promise
    drawBar(pen, kinds, bar, y, pitch, scale, theme);
  }
  pen.ctx.globalAlpha = 1;
}

function drawBar(pen, kinds, [code, start, end, real, padding, cached], y, pitch, scale, theme) {
  if (end < scale.from || start > scale.to) return;
  const { ctx, ratio } = pen;
  const kind = kinds[code];
  const x0 = scale.x(Math.max(start, scale.from));
  const width = Math.max(scale.x(Math.min(end, scale.to)) - x0, 1 / ratio);
  const gap = pitch >= 6 ? 1 : pitch >= 4 ? 0.5 : 0;
  const full = pitch - gap;
  if (kind.thin) {
    const height = Math.max(1.5, full * 0.3);
    ctx.fillStyle = kind.hatched ? hatch(ctx, kind.color, ratio) : alpha(kind.color, theme.dark ? 0.75 : 0.6);
    ctx.fillRect(x0, y + (full - height) / 2, width, height);
    return;
  }
  ctx.fillStyle = kind.hatched ? hatch(ctx, kind.color, ratio) : kind.color;
  const beside = kind.hatched ? 0 : cached || padding; // what was found computed, or computed in vain
  const share = beside ? real / (real + beside) : 1;
  const height = share < 1 ? Math.max(Math.min(2, full / 2), full * share) : full;
  ctx.fillRect(x0, y, width, height);
  if (share < 1) {
    const other = kinds.find((entry) => entry.name === (cached ? "cached" : "padding"));
    ctx.fillStyle = other.hatched ? hatch(ctx, other.color, ratio, 0.9, other.backward) : other.color;
    const more = cached ? Math.max(0, 6 - width) : 0; // a short step must not hide what it was spared
    ctx.fillRect(x0 - more, y + (more ? 0 : height), width + more, more ? full : full - height);
  }
}

// Hairlines where steps end: the batch of every step becomes visible as a column.
function drawStepEdges(ctx, lane, box, scale, theme) {
  const shown = lane.steps.filter((step) => step[2] >= scale.from && step[1] <= scale.to);
  if (shown.length < 2) return;
  const spacing = (scale.x(shown[shown.length - 1][2]) - scale.x(shown[0][1])) / shown.length;
  if (spacing < 3) return;
  ctx.fillStyle = alpha(theme.background, Math.min(0.85, 0.16 * (spacing - 2)));
  for (const step of shown) ctx.fillRect(scale.x(step[2]) - 0.5, box.y, 1, box.h);
}

function drawFirstTokens(ctx, rows, box, scale, theme) {
  const radius = Math.min(3, Math.max(1.6, box.pitch * 0.36));
  rows.forEach((row, place) => {
    if (row.first == null || row.first < scale.from) return;
    ctx.beginPath();
    ctx.arc(scale.x(row.first), box.y + place * box.pitch + (box.pitch - 1) / 2, radius, 0, 2 * Math.PI);
    ctx.fillStyle = theme.ink;
    ctx.fill();
    ctx.lineWidth = 1;
    ctx.strokeStyle = theme.background;
    ctx.stroke();
  });
}

// What the person changed, and when; the words of the last change only, lest they cover each other.
function drawMarks(pen, lane, box, scale, theme) {
  const { ctx } = pen;
  const marks = lane.marks.filter(([time]) => time >= scale.from && time <= scale.to);
  ctx.save();
  ctx.setLineDash([2, 3]);
  ctx.strokeStyle = theme.ink;
  for (const [time] of marks) {
    const x = Math.round(scale.x(time)) + 0.5;
    ctx.beginPath();
    ctx.moveTo(x, box.y - 2);
    ctx.lineTo(x, box.y + box.h + box.strip + 4);
    ctx.stroke();
  }
  ctx.restore();
  if (!marks.length) return;
  const [time, text] = marks[marks.length - 1];
  const x = scale.x(time);
  const flip = x + pen.measure(text, 11, 600) + 8 > box.x + box.w;
  pen.text(text, x + (flip ? -5 : 5), box.y + box.h - 8, { size: 11, weight: 600, align: flip ? "right" : "left", halo: theme.background });
}

function drawNow(pen, now, box, scale, color) {
  const { ctx } = pen;
  if (now < scale.from || now > scale.to) return;
  const x = scale.x(now);
  const glow = ctx.createLinearGradient(x - 26, 0, x, 0);
  glow.addColorStop(0, alpha(color, 0));
  glow.addColorStop(1, alpha(color, 0.16));
  ctx.fillStyle = glow;
  ctx.fillRect(Math.max(box.x, x - 26), box.y, Math.min(26, x - box.x), box.h + box.strip + 4);
  ctx.fillStyle = color;
  ctx.fillRect(x - 0.75, box.y - 3, 1.5, box.h + box.strip + 7);
  ctx.beginPath();
  ctx.arc(x, box.y - 4, 3.2, 0, 2 * Math.PI);
  ctx.fill();
}

// The batch of each step, stacked: how many rows computed prompts, output tokens, nothing of use. Where steps are too
// many for a page, neighbours are one column: the mean, and in grey the largest batch among them.
function drawStrip(pen, store, index, lane, box, scale, theme) {
  const { ctx, ratio } = pen;
  const { config } = store;
  const y = box.y + box.h + 4;
  const height = box.strip;
  pen.panel(box.x, y, box.w, height);
  const limit = lane.steps.reduce((most, step) => Math.max(most, step[16] || step[3] + step[4] + step[5]), config.runs[index].limit || 1);
  const unit = (height - 2) / limit;
  const colors = ["prefill", "decode", "wasted"].map((name) => config.kinds.find((kind) => kind.name === name));
  for (const step of lane.steps) {
    if (step[2] < scale.from || step[1] > scale.to) continue;
    const x0 = scale.x(Math.max(step[1], scale.from));
    const full = scale.x(step[2]) - x0;
    const width = Math.max(0.5, full > 4 && stepsIn(step) === 1 ? full - 1 : full);
    if (step[16]) { // several steps: their mean, and behind it the largest of them
      ctx.fillStyle = alpha(theme.ink, 0.13);
      ctx.fillRect(x0, y + height - step[16] * unit, width, step[16] * unit);
    }
    let bottom = y + height;
    for (const [place, column] of [[1, 4], [0, 3], [2, 5]]) {
      if (!step[column]) continue;
      const kind = colors[place];
      ctx.fillStyle = kind.hatched ? hatch(ctx, kind.color, ratio) : kind.color;
      ctx.fillRect(x0, bottom - step[column] * unit, width, step[column] * unit);
      bottom -= step[column] * unit;
    }
  }
  pen.text("batch", 4, y + height / 2, { color: theme.soft, size: 10, turn: true });
  pen.text(String(limit), box.x - 6, y + 5, { align: "right", color: theme.soft, size: 10 });
  pen.text("0", box.x - 6, y + height - 4, { align: "right", color: theme.soft, size: 10 });
}

// Beside the requests: latencies so far, and where the work went.

function drawAxesFrame(pen, box, theme) {
  pen.panel(box.x, box.y, box.w, box.h);
  pen.ctx.fillStyle = theme.line;
  pen.ctx.fillRect(box.x, box.y + box.h, box.w, 1);
}

// Cumulative share over latency, with p50 and p95 marked, and the limit if there is one.
function drawCdf(pen, { title, none, limit }, curves, box, theme) {
  const { ctx } = pen;
  const longest = Math.max(0, ...curves.map((c) => c.values[c.values.length - 1] || 0));
  const shown = Math.max(longest, limit && limit < 6 * longest ? limit : 0);
  const high = niceAbove(shown * 1.02 || limit * 1.2 || 1);
  const x = (value) => box.x + (value / high) * box.w;
  const y = (share) => box.y + box.h - share * box.h;
  pen.text(title, box.x - 34, box.y - 24, { size: 12, weight: 600 });
  const kept = curves.filter((c) => c.share != null);
  const words = limit ? `SLO ${seconds(limit)}${kept.length ? ": kept by " : ""}` : "of finished requests, p50 and p95 marked";
  pen.text(words, box.x - 34, box.y - 10, { size: 10, color: theme.soft });
  let place = box.x - 34 + pen.measure(words, 10);
  kept.forEach(({ share, color }, i) => {
    const text = `${i ? "   " : ""}● `;
    pen.text(text, place, box.y - 10, { size: 10, color });
    place += pen.measure(text, 10);
    pen.text(percent(share), place, box.y - 10, { size: 10, weight: 600 });
    place += pen.measure(percent(share), 10, 600);
  });
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
  pen.text(unit === 1000 ? "ms" : "s", box.x + box.w, box.y + box.h + 23, { align: "right", color: theme.soft, size: 10 });
  if (!longest) pen.text(none, box.x + box.w / 2, box.y + box.h / 2, { align: "center", color: theme.soft, size: 11, halo: theme.background });
  if (limit && limit <= high) pen.line([[x(limit), box.y - 3], [x(limit), box.y + box.h]], theme.ink, 1.25, [5, 3]);
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
    const share = useful + waste ? Math.round((100 * waste) / (useful + waste)) : 0;
    const wasted = waste ? `${share}% wasted` : "none wasted";
    let note = useful + waste ? `${plainNumber(useful)} useful, ${wasted}` : "";
    if (pen.measure(config.runs[index].name, 11, 600) + pen.measure(note, 11) + 12 > box.w && note) note = wasted;
    const room = box.w - pen.measure(note, 11) - 12;
    pen.text(pen.fitName(config.runs[index].name, room, 11, 600), box.x, y, { size: 11, weight: 600 });
    pen.text(note, box.x + box.w, y, { size: 11, align: "right", color: theme.soft });
    pen.panel(box.x, y + 9, box.w, 15);
    let left = box.x;
    for (const name of names) {
      const width = (lane.work[name] / high) * box.w;
      const kind = config.kinds.find((entry) => entry.name === name);
      ctx.fillStyle = kind.hatched ? hatch(ctx, kind.color, ratio, 0.9, kind.backward) : kind.color;
      ctx.fillRect(left, y + 9, width, 15);
      left += width;
    }
  });
}

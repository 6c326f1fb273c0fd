// What lies under the mouse, or where the arrow keys went, on the canvas of requests over time.

Object.assign(View.prototype, {
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
    const place = row == null ? -1 : this.shown[lane].findIndex((r) => r.id === row);
    if (place >= 0) {
      ctx.fillStyle = alpha(this.theme.ink, 0.1);
      ctx.fillRect(box.x, box.y + place * box.pitch, box.w, box.pitch - 1);
    }
  },

  point(event) {
    const rect = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - rect.left, event.clientY - rect.top];
    const place = this.plan.lanes.findIndex((box) => y >= box.y && y <= box.y + box.h + box.strip + 4);
    const titled = this.plan.lanes.findIndex((box) => y < box.y && y >= box.y - 24);
    this.canvas.title = titled < 0 ? "" : this.config.runs[titled].name; // there it may be cut short
    const axis = y >= this.plan.axis.y && y <= this.plan.axis.y + 30;
    if ((place < 0 && !axis) || x < GUTTER) return this.leave();
    const lane = axis ? this.scrubLane() : place;
    const box = this.plan.lanes[lane];
    const t = this.scale.t(x);
    const step = this.laneShown(lane).steps.find((s) => s[1] <= t && t <= s[2]) || null;
    const row = axis ? null : this.shown[lane][Math.floor((y - box.y) / box.pitch)];
    this.cursor = { lane, step, row: row && row.arrival <= t ? row.id : null };
    this.canvas.style.cursor = this.cursor.row != null || step ? "pointer" : "";
    this.showTip(x, y);
    this.draw();
  },

  // A request is explained, a step in the batch strip or on the axis is gone to.
  click() {
    if (!this.cursor) return;
    if (this.cursor.row != null) this.pick();
    else if (this.cursor.step) this.goTo(this.cursor.lane, this.cursor.step[0]);
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
    const request = row != null ? this.laneShown(lane).rows.get(row) : null;
    if (request) {
      lines.push(make("b", {}, `request ${nameOfId(request.id)}`));
      lines.push(make("div", {}, `${request.prompt} prompt tokens, ${request.output} of at most ${request.max} output tokens`));
      if (request.cached) lines.push(make("div", {}, `${request.cached} tokens found in the prefix cache`));
      if (request.first != null) lines.push(make("div", {}, `first token after ${seconds(request.first - request.arrival)}`));
    }
    if (step) {
      const [index, start, end, prefill, decode, wasted, computed, padded] = step;
      const count = stepsIn(step);
      const number = (n) => plainNumber(Math.round(10 * n) / 10);
      lines.push(make("b", {}, count > 1 ? `steps ${index} to ${index + count - 1}, ${seconds(end - start)}` : `step ${index}, ${seconds(end - start)}`));
      const rows = [[prefill, "prompt"], [decode, "decode"], [wasted, "finished"]].filter(([n]) => n).map(([n, word]) => `${number(n)} ${word}`);
      const total = count > 1 ? `${number(prefill + decode + wasted)} rows on average, ${step[15]} to ${step[16]}` : `${prefill + decode + wasted} rows`;
      lines.push(make("div", {}, `${total}: ${rows.join(", ")}`));
      lines.push(make("div", {}, `${computed} tokens computed${padded ? `, ${padded} of padding` : ""}`));
      lines.push(make("div", {}, `${step[10]} waiting afterwards, ${step[11]} blocks in use`));
    }
    this.tip.hidden = !lines.length;
    this.tip.replaceChildren(...lines);
    const flip = x > this.plan.width - 250;
    Object.assign(this.tip.style, { left: flip ? "" : `${x + 14}px`, right: flip ? `${this.plan.width - x + 14}px` : "", top: `${y + 14}px` });
  },

  // Left and right go through steps, up and down through requests, Enter explains one.
  key(event) {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (event.key === "Enter") return this.pick();
    if (event.key === "Escape") return this.goLive();
    if (!moves[event.key]) return;
    event.preventDefault();
    const [dx, dy] = moves[event.key];
    if (dx) this.stepBy(dx * (event.shiftKey ? 10 : 1));
    let lane = this.cursor ? this.cursor.lane : this.scrubLane();
    let index = this.shown[lane].findIndex((r) => r.id === this.cursor?.row) + dy;
    if (index < 0 && dy < 0 && lane > 0) index = this.shown[(lane -= 1)].length - 1;
    if (index >= this.shown[lane].length && lane + 1 < this.shown.length) [lane, index] = [lane + 1, 0];
    const row = dy || this.cursor ? this.shown[lane][Math.max(0, Math.min(this.shown[lane].length - 1, index))] : null;
    const step = this.scrub?.lane === lane ? stepAt(this.laneShown(lane).steps, this.scrub.index) : null;
    this.cursor = { lane, step, row: row ? row.id : null };
    this.draw();
    const box = this.plan.lanes[lane];
    const at = this.shown[lane].findIndex((r) => r.id === this.cursor.row);
    this.showTip(step ? this.scale.x(step[2]) : box.x, box.y + Math.max(0, at) * box.pitch);
    this.twin.textContent = [...this.tip.children].map((line) => line.textContent).join(". ");
  },
});

// A request is called by its id, as in reports, exports and errors; further samples of a prompt say so.
function nameOfId(id) {
  const sample = Math.floor(id / 2 ** 32);
  const number = id % 2 ** 32;
  const name = number >= 1000000 ? `sent by hand (id ${number})` : String(number);
  return `${name}${sample ? ` (sample ${sample + 1})` : ""}`;
}

// Going back to any step: a slider over all steps of a policy, and the step it stands on, as the trace has it.

const COUNTERS = [
  ["computed", "tokens computed"],
  ["padded", "padding"],
  ["sampled", "tokens sampled"],
  ["recomputed", "computed again"],
  ["running", "running after it"],
  ["waiting", "waiting after it"],
  ["used", "blocks in use"],
  ["cached", "blocks cached"],
  ["free", "blocks free"],
];
const SHOWN_ROWS = 48;

Object.assign(View.prototype, {
  buildScrub() {
    const button = (label, title, act) => make("button", { type: "button", class: "lab-button lab-small", title, "aria-label": title, onclick: act }, label);
    this.slot = make("input", { type: "range", min: 0, max: 0, step: 1, class: "lab-scrub-slider", "aria-label": "Step to look at" });
    this.slot.addEventListener("input", () => this.goTo(this.scrubLane(), Number(this.slot.value)));
    this.where = make("output", { class: "lab-where" });
    this.liveButton = button("Now", "Back to what happens now", () => this.goLive());
    this.pickers = this.config.runs.map((run, lane) =>
      make("button", { type: "button", class: "lab-button lab-small", style: `--lane: ${run.color}`, title: `Look at the steps of ${run.name}`, onclick: () => this.watch(lane) }, make("i", { class: "lab-dot" }), make("span", { class: "lab-name" }, run.name)));
    const group = make("span", { class: "lab-pickers", role: "group", "aria-label": "Policy to look at" }, ...(this.pickers.length > 1 ? this.pickers : []));
    return make("div", { class: "lab-scrub" }, group, button("◀", "One step back", () => this.stepBy(-1)), this.slot, button("▶", "One step on", () => this.stepBy(1)), this.liveButton, this.where);
  },

  buildStep() {
    this.counters = new Map();
    const list = make("div", { class: "lab-counters", role: "list" });
    for (const [name, label] of COUNTERS) {
      const value = make("b", { "data-name": name }, "–");
      this.counters.set(name, value);
      list.append(make("div", { role: "listitem" }, make("span", {}, label), value));
    }
    this.stepTitle = make("span");
    this.stepBody = make("div", { class: "lab-stepbody" });
    this.stepPanel = make("details", { class: "lab-panel lab-inspect", open: true }, make("summary", {}, make("b", {}, "Step"), this.stepTitle), list, this.stepBody);
    return this.stepPanel;
  },

  // -- where we are --------------------------------------------------------------------------------------
  scrubLane() {
    const lane = this.scrub?.lane ?? this.watched ?? this.store.head.active;
    return this.store.lanes[lane]?.begun ? lane : Math.min(this.store.head.active, this.store.lanes.length - 1);
  },

  lastStep(lane) {
    return (this.store.lanes[lane].numbers.steps || 0) - 1;
  },

  goTo(lane, index) {
    const last = this.lastStep(lane);
    if (last < 0) return;
    this.scrub = { lane, index: Math.max(0, Math.min(last, index)) };
    this.watched = lane;
    this.ask(lane, this.scrub.index);
    this.showScrub();
    this.draw();
  },

  goLive() {
    this.scrub = null;
    this.store.lanes.forEach((lane) => (lane.look = null));
    this.showScrub();
    this.draw();
  },

  watch(lane) {
    this.watched = lane;
    if (this.scrub) this.goTo(lane, this.indexAt(lane, this.timeOf(this.scrub)));
    else this.showScrub();
    this.draw();
  },

  stepBy(change) {
    const lane = this.scrubLane();
    this.goTo(lane, (this.scrub ? this.scrub.index : this.lastStep(lane)) + change);
  },

  timeOf({ lane, index }) {
    const { records, steps } = this.store.lanes[lane];
    return records.get(index)?.start ?? stepAt(steps, index)?.[1] ?? 0;
  },

  // The step of another policy at the same time, as far as it is on the page.
  indexAt(lane, time) {
    const { steps } = this.store.lanes[lane];
    return (steps.find((step) => step[2] > time) || steps[steps.length - 1] || [0])[0];
  },

  // -- asking the kernel ---------------------------------------------------------------------------------
  // The page keeps only what is recent: of longer runs the requests at that time are asked for too.
  needsPast(lane) {
    const { rows, numbers } = this.store.lanes[lane];
    return this.config.scroll || numbers.arrived > rows.size;
  },

  ask(lane, index) {
    if (this.asked && performance.now() - this.asked.at < 3000) {
      this.asked.next = { lane, index };
      return;
    }
    this.asked = { at: performance.now(), next: null };
    this.tell({ command: "past", lane, index, around: Boolean(this.scrub) && this.needsPast(lane) });
  },

  hearPast() {
    const next = this.asked?.next;
    this.asked = null;
    if (next) this.ask(next.lane, next.index);
    this.showScrub();
    this.draw();
  },

  pastShown() {
    return (this.scrub && this.store.lanes[this.scrub.lane].look?.past) || null;
  },

  laneShown(index) {
    return (this.scrub?.lane === index && this.pastShown()) || this.store.lanes[index];
  },

  // -- showing it ----------------------------------------------------------------------------------------
  showScrub() {
    this.scrubAt = performance.now();
    const lane = this.scrubLane();
    const last = this.lastStep(lane);
    const index = this.scrub ? this.scrub.index : last;
    this.slot.max = Math.max(0, last);
    this.slot.value = Math.max(0, index);
    this.slot.disabled = last < 0;
    this.slot.style.setProperty("--fill", `${last > 0 ? (100 * index) / last : 0}%`);
    this.liveButton.disabled = !this.scrub;
    this.root.dataset.scrub = this.scrub ? index : "";
    const where = last < 0 ? "no step yet" : `step ${index} of ${last}${this.scrub ? "" : this.store.lanes[lane].done ? " (the last)" : " (now)"}`;
    if (this.where.textContent !== where) this.where.textContent = where;
    this.slot.setAttribute("aria-valuetext", where);
    this.pickers.forEach((picker, i) => {
      picker.setAttribute("aria-pressed", String(i === lane));
      picker.disabled = !this.store.lanes[i].begun;
    });
    this.fillStep(lane, index);
  },

  fillStep(lane, index) {
    const record = this.store.lanes[lane].records.get(index);
    const still = this.scrub || !["running", "preparing"].includes(this.store.head.state);
    if (!record && still && index >= 0 && !this.asked) this.ask(lane, index);
    const brief = record || (this.scrub ? null : this.briefStep(lane));
    const sign = `${this.store.run} ${lane} ${brief?.index} ${Boolean(record)}`;
    if (sign === this.stepSign || !this.stepPanel.open) return;
    this.stepSign = sign;
    for (const [name] of COUNTERS) this.counters.get(name).textContent = brief?.[name] ?? "–";
    this.stepPanel.dataset.index = record ? record.index : "";
    this.stepPanel.dataset.start = record ? record.start : "";
    this.stepPanel.dataset.end = record ? record.end : "";
    this.stepTitle.textContent = brief ? ` ${brief.index} of ${this.config.runs[lane].name} · ${brief.start.toFixed(3)} s, took ${seconds(brief.end - brief.start)}` : "";
    if (record) this.stepBody.replaceChildren(this.rowsTable(record), this.eventList(record));
    else this.stepBody.replaceChildren(make("p", {}, index < 0 ? "" : "Pause, or move the slider above, to see its rows."));
  },

  // The newest step as the page gets it ten times a second.
  briefStep(lane) {
    const { steps } = this.store.lanes[lane];
    const step = steps[steps.length - 1];
    if (!step) return null;
    const [index, start, end, , , , computed, padded, sampled, running, waiting, used, free, cached] = step;
    return { index, start, end, computed, padded, sampled, running, waiting, used, free, cached };
  },

  rowsTable(record) {
    const cells = record.rows.slice(0, SHOWN_ROWS).map(([id, first, count, padding, sampled, prompt]) => {
      const what = !count ? "has finished" : count === 1 && first >= prompt ? "decode" : "prompt";
      const place = count > 1 ? `${first}–${first + count - 1}` : count ? `${first}` : "–";
      return make("tr", { "data-request": id }, ...[nameOfId(id), what, place, count, padding, sampled ? "yes" : "no"].map((value) => make("td", {}, String(value))));
    });
    const head = make("tr", {}, ...["request", "what", "positions", "computed", "padding", "sampled"].map((name) => make("th", { scope: "col" }, name)));
    const more = record.rows.length - cells.length;
    const caption = make("caption", {}, `${record.rows.length} ${record.rows.length === 1 ? "row" : "rows"}, ${record.attention}${more > 0 ? `; ${more} more are not listed` : ""}`);
    return make("table", { class: "lab-rows" }, caption, make("thead", {}, head), make("tbody", {}, ...cells));
  },

  eventList({ events }) {
    const words = { arrived: "arrives", admitted: "is let in", preempted: "is preempted", finished: "has finished", delivered: "gets its tokens", aborted: "is given up", refused: "is refused" };
    const extra = { admitted: "tokens from the cache", preempted: "tokens dropped", finished: "tokens", delivered: "tokens" };
    const texts = events.slice(0, SHOWN_ROWS).map(([, kind, request, value, note]) =>
      request < 0 ? `${kind}: ${note}` : `request ${nameOfId(request)} ${words[kind] || kind}${value && extra[kind] ? ` (${value} ${extra[kind]})` : ""}`);
    return make("p", { class: "lab-events" }, texts.join(" · ") || "no events");
  },

  // Where the slider stands, on the lane.
  drawScrub(pen, plan, scale) {
    if (!this.scrub) return;
    const { lane, index } = this.scrub;
    const box = plan.lanes[lane];
    const record = this.store.lanes[lane].records.get(index);
    const start = record ? record.start : this.timeOf(this.scrub);
    const [x0, x1] = [scale.x(start), scale.x(record ? record.end : start)];
    const { ctx } = pen;
    ctx.fillStyle = alpha(this.theme.ink, 0.12);
    ctx.fillRect(x0, box.y - 2, Math.max(2, x1 - x0), box.h + box.strip + 8);
    ctx.fillStyle = this.theme.ink;
    ctx.fillRect(x0 - 0.5, box.y - 2, 1, box.h + box.strip + 8);
    ctx.fillRect(Math.max(x0 + 1.5, x1) - 0.5, box.y - 2, 1, box.h + box.strip + 8);
    ctx.beginPath();
    ctx.moveTo((x0 + x1) / 2 - 5, box.y - 8);
    ctx.lineTo((x0 + x1) / 2 + 5, box.y - 8);
    ctx.lineTo((x0 + x1) / 2, box.y - 1);
    ctx.fill();
  },
});

// The card of a chosen request: where its time went, why that was, and its answer as it is written.

Object.assign(View.prototype, {
  pick() {
    if (!this.cursor || this.cursor.row == null) return;
    this.explain(this.cursor.lane, this.cursor.row);
  },

  explain(lane, row) {
    this.picked = { lane, row };
    this.askWhy();
    this.showCard();
    this.draw();
  },

  // The kernel splits the request's time; asked again while it lives, once a second.
  askWhy() {
    this.whyAt = performance.now();
    this.whyState = this.store.head.state;
    this.tell({ command: "why", lane: this.picked.lane, request: this.picked.row });
  },

  refreshWhy() {
    if (!this.picked || !this.store.lanes[this.picked.lane]?.begun) return;
    const { state } = this.store.head;
    const due = ["preparing", "running"].includes(state) ? performance.now() - this.whyAt > 1000 : this.whyState !== state;
    if (due) this.askWhy();
  },

  reason({ lane, row }) {
    return this.store.reasons.get(`${lane} ${row}`) || null;
  },

  // The picked request, else the one whose answer is being written.
  showCard() {
    this.refreshWhy();
    const { speech } = this.store.head;
    const chosen = this.picked || (speech && { lane: speech.lane, row: speech.request });
    const request = chosen && this.store.lanes[chosen.lane]?.rows.get(chosen.row);
    const reason = chosen && this.picked && this.reason(chosen);
    this.card.hidden = !this.store.lanes[0].begun;
    if (!request && !reason) {
      if (this.cardSign !== "none") this.card.replaceChildren(make("p", {}, "Click a request to see where its time went."));
      this.cardSign = "none";
      return;
    }
    const sign = [chosen.lane, chosen.row, request?.state, request?.bars.length, request?.output, this.store.head.state, speech?.text.length, reason?.total].join();
    if (sign === this.cardSign && !BUSY.includes(this.store.head.state)) return;
    this.cardSign = sign;
    const words = speech && speech.lane === chosen.lane && speech.request === chosen.row ? speech : null;
    const title = make("h4", {}, make("i", { class: "lab-dot", style: `--lane: ${this.config.runs[chosen.lane].color}` }), `request ${nameOfId(chosen.row)}`, make("small", {}, request ? this.fate(request, chosen.lane) : reason.ended || ""));
    this.card.replaceChildren(
      title,
      ...(reason ? this.reasonParts(reason) : this.timeSplit(request, chosen.lane)),
      words?.prompt ? make("blockquote", { class: "lab-asked" }, words.prompt) : "",
      words?.text ? make("blockquote", {}, words.text, request?.state === "running" && BUSY.includes(this.store.head.state) ? make("i", { class: "lab-caret" }) : "") : "",
    );
    this.card.lastElementChild.scrollTop = 1e6;
  },

  fate(request, lane) {
    if (this.store.inFlight(lane, request.id) && request.state === "waiting") return "its prompt is being computed";
    const words = { finished: "done", delivered: "done", aborted: "given up" };
    return `${words[request.state] || request.state} · ${request.output} of ${request.max} tokens`;
  },

  splitBar(parts) {
    const total = parts.reduce((sum, part) => sum + part.time, 0) || 1;
    const bar = parts.map(({ time, color, hatched, label }) =>
      make("i", { class: `lab-swatch${hatched ? " hatched" : ""}`, style: `--c: ${color}; width: ${(100 * time) / total}%`, title: `${label}: ${seconds(time)}` }));
    return make("div", { class: "lab-split" }, ...bar);
  },

  reasonParts(reason) {
    const parts = this.config.parts.map((part) => ({ ...part, time: reason.parts[part.name] })).filter((part) => part.time > 0);
    const list = parts.map(({ label, time, color, hatched, name }) =>
      make("li", { "data-part": name }, make("i", { class: `lab-swatch${hatched ? " hatched" : ""}`, style: `--c: ${color}` }), make("span", {}, label), make("b", {}, seconds(time))));
    const total = make("li", { class: "lab-sum", "data-total": reason.total }, make("i"), make("span", {}, reason.ended ? "end to end" : "so far"), make("b", {}, seconds(reason.total)));
    return [this.splitBar(parts), make("ul", { class: "lab-parts" }, ...list, total), make("p", {}, whySlow(reason, parts))];
  },

  timeSplit(request, lane) {
    const { kinds } = this.config;
    const spent = new Map();
    for (const [code, start, end] of this.store.barsOf(lane, request)) spent.set(code, (spent.get(code) || 0) + end - start);
    const parts = [...spent].map(([code, time]) => ({ ...kinds[code], time }));
    return [this.splitBar(parts), make("p", {}, parts.map(({ short, time }) => `${short} ${seconds(time)}`).join(" · "))];
  },
});

const BECAUSE = {
  queueing: "Most of it passed before it was let in.",
  prefill: "Most of it was its own prompt.",
  decode: "Most of it was its own output, one step per token.",
  stall: "Most of it was spent let in, but not in the step under way.",
  preemption: "Most of it was lost to preemption.",
  delivery: "Most of it was waiting for the rest of its batch.",
};

function whySlow({ company }, parts) {
  if (!parts.length) return "Nothing has happened to it yet.";
  const largest = parts.reduce((a, b) => (b.time > a.time ? b : a));
  const { plain, plain_s: alone, beside, beside_s: slow } = company;
  const mixed = beside && plain ? ` ${beside} of its ${beside + plain} decode steps computed others' prompts too: ${seconds(slow)} each instead of ${seconds(alone)}.` : "";
  return BECAUSE[largest.name] + mixed;
}

// The card of a chosen request: where its time went, and its answer as it is written.

Object.assign(View.prototype, {
  pick() {
    if (!this.cursor || this.cursor.row == null) return;
    this.picked = { lane: this.cursor.lane, row: this.cursor.row };
    this.tell({ command: "follow", lane: this.picked.lane, request: this.picked.row });
    this.showCard();
  },

  // The picked request, else the one whose answer is being written.
  showCard() {
    const speech = this.store.head.speech;
    const chosen = this.picked || (speech && { lane: speech.lane, row: speech.request });
    const request = chosen && this.store.lanes[chosen.lane]?.rows.get(chosen.row);
    this.card.hidden = !this.store.lanes[0].begun;
    if (!request) {
      this.card.replaceChildren(make("p", {}, "Click a request to see where its time went."));
      return;
    }
    const sign = [chosen.lane, chosen.row, request.state, request.bars.length, request.output, this.store.head.state, speech?.text.length].join();
    if (sign === this.cardSign && !BUSY.includes(this.store.head.state)) return;
    this.cardSign = sign;
    const words = speech && speech.lane === chosen.lane && speech.request === chosen.row ? speech : null;
    this.card.replaceChildren(
      make("h4", {}, make("i", { class: "lab-dot", style: `--lane: ${this.config.runs[chosen.lane].color}` }), `request ${this.nameOf(request)}`, make("small", {}, this.fate(request, chosen.lane))),
      ...this.timeSplit(request, chosen.lane),
      words?.prompt ? make("blockquote", { class: "lab-asked" }, words.prompt) : "",
      words?.text ? make("blockquote", {}, words.text, request.state === "running" && BUSY.includes(this.store.head.state) ? make("i", { class: "lab-caret" }) : "") : "",
    );
    this.card.lastElementChild.scrollTop = 1e6;
  },

  fate(request, lane) {
    if (this.store.inFlight(lane, request.id) && request.state === "waiting") return "its prompt is being computed";
    const words = { finished: "done", delivered: "done", aborted: "given up" };
    return `${words[request.state] || request.state} · ${request.output} of ${request.max} tokens`;
  },

  timeSplit(request, lane) {
    const { kinds } = this.config;
    const spent = new Map();
    for (const [code, start, end] of this.store.barsOf(lane, request)) spent.set(code, (spent.get(code) || 0) + end - start);
    const total = [...spent.values()].reduce((a, b) => a + b, 0) || 1;
    const parts = [...spent].map(([code, time]) => {
      const style = `--c: ${kinds[code].color}; width: ${(100 * time) / total}%`;
      return make("i", { class: `lab-swatch${kinds[code].hatched ? " hatched" : ""}`, style, title: `${kinds[code].label}: ${seconds(time)}` });
    });
    const words = [...spent].map(([code, time]) => `${kinds[code].short} ${seconds(time)}`);
    return [make("div", { class: "lab-split" }, ...parts), make("p", {}, words.join(" · "))];
  },
});

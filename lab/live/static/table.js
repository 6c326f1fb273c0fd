// The table of numbers: what is compared at a glance, and what a screen reader reads.

function percent(value) {
  return value == null ? "–" : `${Math.round(100 * value)}%`;
}

const COLUMNS = [ // label, text, the number it is a share of its column by, which direction is better
  ["output tokens/s", (n) => (n.output_tokens_per_s == null ? "–" : n.output_tokens_per_s.toFixed(1)), "output_tokens_per_s", 1],
  ["TTFT p50", (n) => seconds(n.ttft_p50), "ttft_p50", -1],
  ["TTFT p95", (n) => seconds(n.ttft_p95), "ttft_p95", -1],
  ["ITL p95", (n) => seconds(n.itl_p95), null, 0],
  ["requests per step", (n) => (n.mean_batch == null ? "–" : n.mean_batch.toFixed(1)), null, 0],
  ["wasted work", (n) => percent(n.waste), null, 0],
  ["finished", (n, c) => `${n.finished ?? 0} of ${c.endless ? n.arrived ?? 0 : Math.max(c.requests, n.arrived ?? 0)}`, null, 0],
];

Object.assign(View.prototype, {
  // With latency limits there is a column for those who kept them all.
  columns() {
    const kept = (n) => (n.slo?.judged ? `${n.slo.met} of ${n.slo.judged}` : "–");
    return Object.keys(this.config.slo).length ? [...COLUMNS, ["within SLO", kept, null, 0]] : COLUMNS;
  },

  buildTable() {
    const COLUMNS = this.columns();
    const head = make("tr", {}, make("th", { scope: "col" }, "policy"), ...COLUMNS.map(([label]) => make("th", { scope: "col" }, label)));
    this.cells = this.config.runs.map((run) => {
      const values = COLUMNS.map(() => make("td"));
      const state = make("small");
      const name = make("th", { scope: "row", style: `--lane: ${run.color}` }, make("i", { class: "lab-dot" }), make("span", { class: "lab-name", title: run.name }, run.name), state);
      return { row: make("tr", {}, name, ...values), values, state };
    });
    this.ratio = make("tr", { class: "lab-ratio", hidden: true });
    const body = make("tbody", {}, ...this.cells.map((entry) => entry.row), this.ratio);
    const caption = make("caption", {}, `Numbers so far, ${this.config.clock}`);
    this.table = make("table", { class: "lab-table" }, caption, make("thead", {}, head), body);
    this.losses = make("div", { class: "lab-losses", role: "status", hidden: true });
    return make("div", { class: "lab-table-wrap" }, this.table, this.losses);
  },

  laneState(index) {
    const lane = this.store.lanes[index];
    const { head } = this.store;
    if (!lane.begun) return BUSY.includes(head.state) ? "next" : "";
    if (lane.done) return `${lane.now.toFixed(1)} s`;
    return `${head.state === "paused" ? "paused at" : "at"} ${lane.now.toFixed(1)} s`;
  },

  fillTable() {
    const all = this.store.lanes.map((lane) => lane.numbers);
    const COLUMNS = this.columns();
    this.cells.forEach(({ values, state }, index) => {
      state.textContent = this.laneState(index);
      COLUMNS.forEach(([, show, field], i) => {
        const begun = this.store.lanes[index].begun;
        const cell = values[i];
        const text = begun ? show(all[index], this.config) : "–";
        if (cell.textContent !== text) cell.textContent = text;
        const high = field ? Math.max(...all.map((n) => n[field] || 0)) : 0;
        const share = field && high ? (all[index][field] || 0) / high : 0;
        cell.style.setProperty("--share", `${(100 * share).toFixed(1)}%`);
        cell.style.setProperty("--lane", this.config.runs[index].color);
      });
    });
    this.fillRatio(all);
    this.sayLosses(all);
    this.speak(all);
  },

  // Requests that were refused or given up, and why.
  sayLosses(all) {
    const lost = all.map((n, i) => (n.losses ? `${this.config.runs[i].name}: ${n.losses}` : "")).filter(Boolean);
    const text = lost.join("\n");
    if (this.losses.textContent !== text) this.losses.textContent = text;
    this.losses.hidden = !text;
  },

  fillRatio(all) {
    const [first, last] = [all[0], all[all.length - 1]];
    const ready = all.length > 1 && this.store.lanes[0].done && this.store.lanes[all.length - 1].begun && last.output_tokens_per_s;
    this.ratio.hidden = !ready;
    if (!ready) return;
    const { runs } = this.config;
    const cells = this.columns().map(([, , field, better]) => {
      if (!field || !first[field] || !last[field]) return make("td");
      const ratio = last[field] / first[field];
      const good = better > 0 ? ratio > 1 : ratio < 1;
      const word = better > 0 ? "×" : ratio < 1 ? "× shorter" : "× longer";
      const value = better > 0 || ratio > 1 ? ratio : 1 / ratio;
      return make("td", { class: Math.abs(ratio - 1) < 0.02 ? "" : good ? "good" : "bad" }, `${value.toFixed(value < 10 ? 2 : 0)}${word}`);
    });
    const words = `${runs[all.length - 1].name} against ${runs[0].name}`;
    this.ratio.replaceChildren(make("th", { scope: "row" }, make("span", { class: "lab-name wide", title: words }, words)), ...cells);
  },

  // What a screen reader hears: at every change of state, else every ten seconds.
  speak(all) {
    const { head } = this.store;
    const now = performance.now();
    if (head.state === this.spokenState && now - (this.spoken || 0) < 10000) return;
    [this.spokenState, this.spoken] = [head.state, now];
    const parts = this.config.runs.map((run, i) => {
      if (!this.store.lanes[i].begun) return `${run.name}: not begun.`;
      const words = this.columns().map(([label, show]) => `${label} ${show(all[i], this.config)}`).join(", ");
      return `${run.name}: ${words}${all[i].losses ? `; ${all[i].losses}` : ""}.`;
    });
    const text = `${head.state}. ${parts.join(" ")}`;
    this.twin.textContent = text;
    this.canvas.setAttribute("aria-label", `Requests over time, ${this.config.clock}. ${text} Left and right go through steps, up and down through requests, Enter explains one, Escape goes back to now.`);
    this.side.setAttribute("aria-label", `Time to first token and inter-token latency as distributions, and tokens computed and wasted. ${this.sayLatencies(all)}`);
  },

  sayLatencies(all) {
    const { slo } = this.config;
    const limits = (n) => ["ttft", "itl"].filter((name) => n.slo?.[name] != null).map((name) => `${percent(n.slo[name])} within the ${name.toUpperCase()} limit of ${seconds(slo[name])}`);
    return this.config.runs.map((run, i) => [`${run.name}: TTFT p50 ${seconds(all[i].ttft_p50)}, p95 ${seconds(all[i].ttft_p95)}`, `ITL p50 ${seconds(all[i].itl_p50)}, p95 ${seconds(all[i].itl_p95)}`, ...limits(all[i])].join(", ")).join(". ");
  },
});

// The widget: controls, table of numbers, legend, canvases, the step looked at and the card of a chosen request.

const ICONS = {
  start: '<path d="M4 2.5v11l9-5.5z"/>',
  pause: '<path d="M4 2.5h3v11H4zM9 2.5h3v11H9z"/>',
  step: '<path d="M3 2.5v11l7-5.5zM11 2.5h2.2v11H11z"/>',
  stop: '<path d="M3 3h10v10H3z"/>',
  send: '<path d="M7 2h2v5h5v2H9v5H7V9H2V7h5z"/>',
};
const BUSY = ["preparing", "running", "paused"];

// JupyterLab takes arrow keys and letters for itself unless the focused element says otherwise.
function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  if (["button", "input", "canvas"].includes(tag)) node.setAttribute("data-lm-suppress-shortcuts", "true");
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "html") node.innerHTML = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child != null));
  return node;
}

class View {
  constructor(model, el, store) {
    Object.assign(this, { model, el, store, config: store.config, cursor: null, picked: null });
    this.frames = [];
    this.latencies = []; // from a slider's move to the kernel's answer, and to the step that obeys it
    this.effects = [];
    this.pending = new Map();
    this.scrub = this.watched = this.asked = null;
    this.command = 0;
    this.root = make("div", { class: "lab-live" });
    this.root.append(this.buildControls(), this.buildNote(), this.buildTable(), this.buildLegend(), this.buildScrub(), this.buildBody(), this.buildFoot());
    if (this.config.kept) this.root.append(make("style", {}, `.${this.config.kept} { display: none; }`)); // its twin for when it is gone
    el.append(this.root);
    this.theme = readTheme(this.root);
    this.listener = (message) => this.hear(message);
    store.listeners.add(this.listener);
    this.resizer = new ResizeObserver(() => this.draw(true)); // also when it is first put on the page
    this.resizer.observe(this.root);
    this.unwatch = watchTheme(() => setTimeout(() => this.draw(true), 60));
    store.askForAll();
    this.refresh();
    this.draw(true);
  }

  destroy() {
    this.store.listeners.delete(this.listener);
    this.resizer.disconnect();
    this.unwatch();
  }

  // -- building ------------------------------------------------------------------------------------------
  buildControls() {
    const button = (name, label, title) =>
      make("button", { type: "button", class: `lab-button lab-${name}`, title, "data-command": name, onclick: () => this.press(name),
        html: `<svg viewBox="0 0 16 16" aria-hidden="true">${ICONS[name]}</svg><span>${label}</span>` });
    this.buttons = {
      start: button("start", "Start", "Run all policies from the beginning"),
      pause: button("pause", "Pause", "Stand still after this step"),
      step: button("step", "Step", "Carry out one step"),
      stop: button("stop", "Stop", "End the run"),
      send: button("send", "Long prompt", `Send a prompt of ${this.config.long_prompt} tokens now`),
    };
    this.sliders = make("div", { class: "lab-sliders" });
    this.inputs = {};
    for (const slider of this.config.controls) this.sliders.append(this.buildSlider(slider));
    this.pill = make("span", { class: "lab-pill" }, make("i"), make("b"), make("span"));
    const buttons = make("div", { class: "lab-buttons", role: "group", "aria-label": "Run" }, ...Object.values(this.buttons));
    return make("div", { class: "lab-controls" }, buttons, this.pill, this.sliders);
  }

  buildSlider(slider) {
    const { label, unit } = this.config.labels[slider.name];
    const output = make("output");
    const input = make("input", { type: "range", "data-name": slider.name, "aria-label": `${label} in ${unit}` });
    if (slider.log) Object.assign(input, { min: 0, max: 400, step: 1 });
    else Object.assign(input, { min: slider.low, max: slider.high, step: slider.step });
    const entry = { slider, input, output, unit, touched: -Infinity };
    this.inputs[slider.name] = entry;
    input.addEventListener("input", () => this.slide(entry));
    this.showSlider(entry, slider.value);
    return make("label", { class: "lab-slider" }, make("span", {}, label, output), input);
  }

  buildNote() {
    this.note = make("div", { class: "lab-note", role: "alert", hidden: true });
    return this.note;
  }

  buildLegend() {
    const entries = this.config.kinds.filter((kind) => kind.legend).map((kind) => {
      const style = `--c: ${kind.color}`;
      return make("li", {}, make("i", { class: `lab-swatch${kind.hatched ? " hatched" : ""}${kind.backward ? " backward" : ""}${kind.thin ? " thin" : ""}`, style }), kind.label);
    });
    entries.push(make("li", {}, make("i", { class: "lab-swatch dot" }), "first token delivered"));
    return make("ul", { class: "lab-legend", "aria-label": "Legend" }, ...entries);
  }

  buildBody() {
    this.canvas = make("canvas", { class: "lab-main", role: "img", tabindex: 0 });
    this.side = make("canvas", { class: "lab-aside", role: "img" });
    this.card = make("div", { class: "lab-card" });
    this.tip = make("div", { class: "lab-tip", hidden: true });
    this.twin = make("div", { class: "lab-hidden", role: "status", "aria-live": "polite" });
    this.canvas.addEventListener("mousemove", (event) => this.point(event));
    this.canvas.addEventListener("mouseleave", () => this.leave());
    this.canvas.addEventListener("click", () => this.click());
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("blur", () => this.leave());
    const main = make("div", { class: "lab-left" }, this.canvas, this.tip);
    return make("div", { class: "lab-body" }, main, make("div", { class: "lab-right" }, this.side, this.card), this.twin);
  }

  buildFoot() {
    return make("div", { class: "lab-foot" }, this.buildBlocks(), this.buildStep());
  }

  // -- to the kernel -------------------------------------------------------------------------------------
  tell(content) {
    const id = ++this.command;
    this.store.send({ ...content, id });
    return id;
  }

  press(name) {
    const resume = name === "pause" && this.store.head.state === "paused";
    this.tell({ command: resume ? "resume" : name });
  }

  slide(entry) {
    const { slider, input } = entry;
    const value = slider.log ? slider.low * (slider.high / slider.low) ** (input.value / 400) : Number(input.value);
    entry.touched = performance.now();
    entry.value = slider.log ? Number(value.toPrecision(2)) : value;
    this.showSlider(entry, entry.value, true);
    if (entry.waiting) return;
    entry.waiting = setTimeout(() => {
      entry.waiting = null;
      this.pending.set(this.tell({ command: "set", name: slider.name, value: entry.value }), entry.touched);
    }, 40);
  }

  // -- from the kernel -----------------------------------------------------------------------------------
  hear(message) {
    const now = performance.now();
    if (message.kind === "accepted") {
      this.latencies.push(now - this.pending.get(message.id));
      return;
    }
    if (message.kind === "past") return this.hearPast();
    if (message.kind === "why") return this.showCard();
    for (const id of message.acks || []) {
      if (this.pending.has(id)) this.effects.push(now - this.pending.get(id));
      this.pending.delete(id);
    }
    if (message.kind === "full" || BUSY.includes(message.state)) this.frames.push(now);
    this.frames = this.frames.slice(-300);
    this.refresh();
    if (!document.hidden) this.draw();
  }

  refresh() {
    const { head } = this.store;
    const busy = BUSY.includes(head.state);
    this.root.dataset.state = head.state;
    const { start, pause, step, stop, send } = this.buttons;
    start.disabled = busy || head.state === "replaced";
    start.lastChild.textContent = ["ready", "replaced"].includes(head.state) || busy ? "Start" : "Run again";
    pause.disabled = !busy;
    pause.lastChild.textContent = head.state === "paused" ? "Resume" : "Pause";
    pause.firstChild.innerHTML = head.state === "paused" ? ICONS.start : ICONS.pause;
    step.disabled = head.state === "replaced";
    stop.disabled = !busy;
    send.disabled = !busy;
    const words = { ready: "ready", preparing: "preparing", running: "running", paused: "paused", finished: "finished", stopped: "stopped", failed: "failed", replaced: "replaced" };
    this.pill.children[1].textContent = words[head.state] || head.state;
    this.pill.children[2].textContent = head.state === "preparing" && head.note ? head.note : this.config.clock;
    this.showNote(head);
    for (const slider of head.controls) {
      const entry = this.inputs[slider.name];
      if (performance.now() - entry.touched > 1200) this.showSlider(entry, slider.value);
    }
    if (this.seenRun !== this.store.run) this.scrub = this.watched = this.picked = this.asked = null; // a new run
    this.seenRun = this.store.run;
    this.fillTable();
    const running = head.state === "running" && !this.scrub;
    if (!running || performance.now() - (this.scrubAt || 0) > 400) this.showScrub(); // numbers one can read
    this.showCard();
    this.stats();
  }

  showNote(head) {
    const text = head.state === "failed" ? head.note
      : head.state === "replaced" ? "A newer session has taken this one's place: use that, or run this cell again."
      : (head.state === "paused" && head.note) || head.said || "";
    if (this.note.textContent !== text) this.note.textContent = text;
    this.note.hidden = !text;
    this.note.classList.toggle("failed", head.state === "failed");
  }

  showSlider(entry, value, own = false) {
    const { slider, input, output, unit } = entry;
    if (value == null) {
      input.value = input.max;
      output.textContent = "as fast as it goes";
      return;
    }
    if (!own) input.value = slider.log ? (400 * Math.log(value / slider.low)) / Math.log(slider.high / slider.low) : value;
    const shown = value < 10 && slider.log ? value.toPrecision(2) : String(Math.round(value * 100) / 100);
    const capacity = this.store.head.capacity;
    const extra = slider.name === "load" && capacity ? ` · ${(value * capacity).toFixed(1)} requests/s` : "";
    const text = `${shown} ${unit}${extra}`;
    if (output.textContent !== text) output.textContent = text;
    input.setAttribute("aria-valuetext", text);
    input.style.setProperty("--fill", `${(100 * (input.value - input.min)) / (input.max - input.min)}%`);
  }

  // Numbers about ourselves, for tests and the curious.
  stats() {
    const gaps = this.frames.slice(1).map((t, i) => t - this.frames[i]).sort((a, b) => a - b);
    const at = (list, q) => (list.length ? list[Math.min(list.length - 1, Math.floor(q * list.length))].toFixed(0) : "");
    const middle = (list) => at([...list].sort((a, b) => a - b), 0.5);
    Object.assign(this.root.dataset, { updates: this.frames.length, p50: at(gaps, 0.5), p95: at(gaps, 0.95) });
    Object.assign(this.root.dataset, { answer: middle(this.latencies), effect: middle(this.effects) });
    if (this.drawn?.length) this.root.dataset.drawMs = at([...this.drawn].sort((a, b) => a - b), 0.5);
  }
}

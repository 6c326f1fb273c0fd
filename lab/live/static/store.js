// What the kernel has told us so far. Messages carry only what changed; a gap in their numbers asks for everything.

const KEPT_STEPS = 4000;

class LaneStore {
  constructor() {
    this.rows = new Map();
    this.steps = [];
    this.series = { width: 0.25 };
    this.usage = { sources: {}, points: [] };
    this.ttft = [];
    this.itl = [];
    this.work = { prefill: 0, decode: 0, padding: 0, wasted: 0 };
    this.numbers = {};
    this.marks = [];
    this.now = 0;
    this.done = false;
    this.begun = false;
  }

  apply(news, whole) {
    this.begun = true;
    if (whole) this.rows.clear();
    for (const entry of news.rows) this.applyRow(entry);
    this.steps = whole ? news.steps : this.steps.concat(news.steps).slice(-KEPT_STEPS);
    const { width, from, ...columns } = news.series;
    if (width !== this.series.width && from > 0) return false; // bins were merged and we missed it
    this.series.width = width;
    for (const [name, values] of Object.entries(columns)) splice(this.series, name, from, values);
    this.usage.sources = news.usage.sources;
    splice(this.usage, "points", news.usage.from, news.usage.points);
    for (const name of ["work", "numbers", "marks"]) this[name] = news[name];
    if (news.ttft) [this.ttft, this.itl] = [news.ttft, news.itl];
    return true;
  }

  applyRow(entry) {
    const [id, arrival, prompt, max, state, since, output, first, last, from, bars, hand] = entry;
    const row = this.rows.get(id) || { id, bars: [] };
    Object.assign(row, { arrival, prompt, max, state, since, output, first, last, hand });
    row.bars.length = Math.min(row.bars.length, from);
    row.bars.push(...bars);
    this.rows.set(id, row);
    if (this.rows.size > 600) this.rows.delete(this.rows.keys().next().value);
  }

  ordered() {
    return [...this.rows.values()].sort((a, b) => a.arrival - b.arrival || a.id - b.id);
  }
}

function splice(target, name, from, values) {
  const old = target[name] || [];
  old.length = Math.min(old.length, from);
  old.push(...values);
  target[name] = old;
}

class Store {
  constructor(config, send) {
    this.config = config;
    this.send = send;
    this.listeners = new Set();
    this.head = { state: "ready", note: "", active: 0, now: [], done: [], controls: config.controls, notes: [], ack: 0 };
    this.revision = this.run = -1;
    this.asked = 0;
    this.reset();
  }

  reset() {
    this.lanes = this.config.runs.map(() => new LaneStore());
  }

  apply(message) {
    if (message.kind === "accepted") {
      for (const listener of this.listeners) listener(message);
      return;
    }
    const whole = message.kind === "full";
    if (!whole && message.revision <= this.revision) return;
    if (message.run !== this.run) this.reset();
    const complete = whole || message.run !== this.run || message.revision === this.revision + 1;
    [this.revision, this.run, this.head] = [message.revision, message.run, message];
    let good = complete;
    for (const news of message.lanes) good = this.lanes[news.lane].apply(news, whole) && good;
    message.now.forEach((now, i) => Object.assign(this.lanes[i], { now, done: message.done[i], begun: true }));
    if (!good) this.askForAll();
    for (const listener of this.listeners) listener(message);
  }

  // The step under way, if the request takes part: what it computes, and since when.
  inFlight(index, id) {
    const { flight, active } = this.head;
    if (!flight || index !== active) return null;
    const entry = flight.rows.find((row) => row[0] === id);
    return entry ? { code: entry[1], start: flight.start } : null;
  }

  // Bars of a row and what goes on beyond the last of them.
  barsOf(index, row) {
    const lane = this.lanes[index];
    const flying = this.inFlight(index, row.id);
    const open = { waiting: "queue", preempted: "preempted" }[row.state];
    const bars = [...row.bars];
    if (open) bars.push([this.config.kinds.findIndex((kind) => kind.name === open), row.since, flying ? flying.start : lane.now, 0, 0]);
    if (flying) bars.push([flying.code, flying.start, lane.now, 0, 0, "flying"]);
    return bars.filter((bar) => bar[2] > bar[1]);
  }

  askForAll() {
    if (performance.now() - this.asked < 1000) return;
    this.asked = performance.now();
    this.send({ command: "hello" });
  }
}

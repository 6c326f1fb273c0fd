// What the kernel has told us so far. Messages carry only what changed; a gap in their numbers asks for everything.

const KEPT_STEPS = 2000; // as they came; older ones are merged into as many
const KEPT_RECORDS = 300;
const KEPT_REASONS = 60;

// Records as lab.live.steps makes them: [index, start, end, 3 numbers of rows, 3 sums, 5 of the last step], and of
// several steps that became one also [count, fewest rows, most rows].
function stepsIn(step) {
  return step[14] || 1;
}

function mergedSteps(a, b) {
  const span = b[2] - a[1];
  const share = span > 0 ? [(a[2] - a[1]) / span, (b[2] - b[1]) / span] : [0.5, 0.5];
  const rows = [3, 4, 5].map((i) => share[0] * a[i] + share[1] * b[i]);
  const ends = [a, b].map((step) => (step[14] ? [step[15], step[16]] : Array(2).fill(step[3] + step[4] + step[5])));
  const bounds = [Math.min(ends[0][0], ends[1][0]), Math.max(ends[0][1], ends[1][1])];
  return [a[0], a[1], b[2], ...rows, ...[6, 7, 8].map((i) => a[i] + b[i]), ...b.slice(9, 14), stepsIn(a) + stepsIn(b), ...bounds];
}

// The record of a step.
function stepAt(steps, index) {
  return steps.find((step) => step[0] <= index && index < step[0] + stepsIn(step)) || null;
}

// Half the records at most: neighbours become one, first those that follow each other without a gap.
function halved(steps) {
  for (let per = 2; ; per *= 2) {
    const found = [];
    for (const step of steps) {
      const last = found[found.length - 1];
      const near = last && (per > 64 || step[1] - last[2] <= 0.1 * (step[2] - last[1]));
      if (near && stepsIn(last) + stepsIn(step) <= per) found[found.length - 1] = mergedSteps(last, step);
      else found.push(step);
    }
    if (found.length <= steps.length / 2 + 1 || per > 1e12) return found;
  }
}

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
    this.peaks = null;
    this.blocks = null;
    this.records = new Map(); // steps as the trace has them, those looked at last
    this.look = null; // the last look back: {index, count, blocks, view}
    this.now = 0;
    this.done = false;
    this.begun = false;
  }

  apply(news, whole) {
    this.begun = true;
    if (whole) this.rows.clear();
    for (const id of news.gone) this.rows.delete(id);
    for (const entry of news.rows) this.applyRow(this.rows, entry);
    this.steps = whole ? news.steps : this.steps.concat(news.steps);
    const old = this.steps.length - KEPT_STEPS;
    if (old > KEPT_STEPS) this.steps = halved(this.steps.slice(0, old)).concat(this.steps.slice(old));
    const { width, from, ...columns } = news.series;
    if (width !== this.series.width && from > 0) return false; // bins were merged and we missed it
    this.series.width = width;
    for (const [name, values] of Object.entries(columns)) splice(this.series, name, from, values);
    this.usage.sources = news.usage.sources;
    splice(this.usage, "points", news.usage.from, news.usage.points);
    for (const name of ["work", "numbers", "marks", "peaks"]) this[name] = news[name];
    if (news.ttft) [this.ttft, this.itl] = [news.ttft, news.itl];
    return news.blocks ? this.applyBlocks(news.blocks) : true;
  }

  applyRow(rows, entry) {
    const [id, arrival, prompt, max, state, since, output, first, last, from, bars, hand, cached] = entry;
    const row = rows.get(id) || { id, bars: [] };
    Object.assign(row, { arrival, prompt, max, state, since, output, first, last, hand, cached });
    row.bars.length = Math.min(row.bars.length, from);
    row.bars.push(...bars);
    rows.set(id, row);
  }

  // Requests whose blocks are as before come without them.
  applyBlocks(blocks) {
    const before = new Map((this.blocks?.held || []).map(([id, , runs]) => [id, runs]));
    for (const share of blocks.held || []) share[2] ||= before.get(share[0]);
    this.blocks = blocks;
    return !(blocks.held || []).some((share) => !share[2]);
  }

  // The answer to a look back; of all steps seen so only the last few hundred are kept.
  applyPast({ index, count, steps, blocks, view }) {
    for (const step of steps) {
      this.records.delete(step.index);
      this.records.set(step.index, step);
    }
    for (const old of this.records.keys()) if (this.records.size > KEPT_RECORDS) this.records.delete(old);
    const rows = new Map();
    for (const entry of view ? view.rows : []) this.applyRow(rows, entry);
    const focus = this.records.get(index)?.start;
    const past = view && { focus, rows, steps: view.steps, from: view.from, to: view.to, now: view.to, begun: true, done: true, marks: [] };
    this.look = { index, count, blocks, past };
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
    this.reasons = new Map(); // "lane request" -> where its time went
  }

  apply(message) {
    if (["accepted", "past", "why"].includes(message.kind)) {
      if (message.kind === "accepted" || message.run === this.run) this.answer(message);
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

  // What somebody asked for, not news.
  answer(message) {
    if (message.kind === "past") this.lanes[message.lane].applyPast(message);
    if (message.kind === "why") {
      const key = `${message.lane} ${message.request}`;
      this.reasons.delete(key);
      this.reasons.set(key, message);
      if (this.reasons.size > KEPT_REASONS) this.reasons.delete(this.reasons.keys().next().value);
    }
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
  barsOf(index, row, lane = this.lanes[index]) {
    const flying = lane === this.lanes[index] && this.inFlight(index, row.id);
    const open = { waiting: "queue", preempted: "preempted" }[row.state];
    const bars = [...row.bars];
    if (open) bars.push([this.config.kinds.findIndex((kind) => kind.name === open), row.since, flying ? flying.start : lane.now, 0, 0, 0]);
    if (flying) bars.push([flying.code, flying.start, lane.now, 0, 0, 0, "flying"]);
    return bars.filter((bar) => bar[2] > bar[1]);
  }

  askForAll() {
    if (performance.now() - this.asked < 1000) return;
    this.asked = performance.now();
    this.send({ command: "hello" });
  }
}

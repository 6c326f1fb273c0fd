// The block map: every block of the pool, coloured by the request that holds it.

const FREE = -1, CACHED = -2, SHARED = -3;

// Who holds what, by block; of large pools by group of blocks. Worked out once per message.
function ownersOf(blocks) {
  if (blocks.owners) return blocks;
  if (blocks.cells) return groupOwners(blocks);
  const owners = new Float64Array(blocks.blocks).fill(FREE);
  const filled = new Float32Array(blocks.blocks).fill(1);
  const holders = new Map();
  for (let i = 0; i < blocks.cached.length; i += 2) owners.fill(CACHED, blocks.cached[i], blocks.cached[i] + blocks.cached[i + 1]);
  for (const [id, computed, runs] of blocks.held) {
    let left = computed;
    for (let i = 0; i < (runs || []).length; i += 2) {
      for (let block = runs[i]; block < runs[i] + runs[i + 1]; block += 1) {
        const tokens = Math.max(0, Math.min(left, blocks.size));
        left -= blocks.size;
        if (!holders.has(block)) holders.set(block, []);
        holders.get(block).push([id, tokens]);
        filled[block] = Math.max(owners[block] >= 0 || owners[block] === SHARED ? filled[block] : 0, tokens / blocks.size);
        owners[block] = owners[block] >= 0 || owners[block] === SHARED ? SHARED : id;
      }
    }
  }
  return Object.assign(blocks, { owners, filled, holders, count: blocks.blocks, per: 1 });
}

function groupOwners(blocks) {
  const flat = [];
  for (const [repeat, ...cell] of blocks.cells) for (let i = 0; i < repeat; i += 1) flat.push(cell);
  const owners = Float64Array.from(flat, ([own, shared, cached, owner]) => (own + shared + cached === 0 ? FREE : cached >= own + shared ? CACHED : shared > own ? SHARED : owner));
  const filled = Float32Array.from(flat, ([own, shared, cached]) => Math.min(1, (own + shared + cached) / blocks.per));
  return Object.assign(blocks, { owners, filled, groups: flat, count: flat.length });
}

Object.assign(View.prototype, {
  buildBlocks() {
    this.blockCanvas = make("canvas", { class: "lab-blockmap", role: "img", tabindex: 0 });
    this.blockTip = make("div", { class: "lab-tip", hidden: true });
    this.blockWords = make("span");
    const swatch = (style, extra, label) => make("li", {}, make("i", { class: `lab-swatch ${extra}`, style }), label);
    const cached = this.config.kinds.find((kind) => kind.name === "cached").color;
    const legend = make("ul", { class: "lab-legend" },
      make("li", {}, ...this.config.owners.slice(0, 4).map((color) => make("i", { class: "lab-swatch small", style: `--c: ${color}` })), "one colour per request, as high as it is filled"),
      swatch("--c: var(--ink)", "small", "shared by several"), swatch(`--c: ${cached}`, "small hatched", "kept by the prefix cache"), swatch("--c: transparent", "small empty", "free"));
    this.blockCanvas.addEventListener("mousemove", (event) => this.pointBlock(event.offsetX, event.offsetY));
    for (const name of ["mouseleave", "blur"]) this.blockCanvas.addEventListener(name, () => this.leaveBlock());
    this.blockCanvas.addEventListener("keydown", (event) => this.keyBlock(event));
    this.blockCanvas.addEventListener("click", () => this.pickBlock());
    const place = make("div", { class: "lab-blockplace" }, this.blockCanvas, this.blockTip);
    this.blockPanel = make("details", { class: "lab-panel", open: true, ontoggle: () => this.draw() }, make("summary", {}, make("b", {}, "KV blocks"), this.blockWords), place, legend);
    return this.blockPanel;
  },

  blocksShown() {
    const lane = this.store.lanes[this.scrubLane()];
    return (this.scrub ? lane.look?.blocks : lane.blocks) || null;
  },

  // Drawn only when something about it has changed.
  drawBlocks() {
    const width = this.blockCanvas.parentElement.clientWidth;
    if (!this.blockPanel.open || width < 50) return;
    const running = this.store.head.state === "running" && !this.scrub && this.blockCursor == null;
    if (running && performance.now() - (this.blocksAt || 0) < 200) return;
    const blocks = this.blocksShown();
    const picked = blocks && this.markedRequest(ownersOf(blocks));
    const seen = [blocks, picked, width, this.blockCursor, this.theme, this.scrub?.index].map((value, i) => value === this.blockSeen?.[i]);
    if (seen.every(Boolean)) return;
    this.blockSeen = [blocks, picked, width, this.blockCursor, this.theme, this.scrub?.index];
    this.blocksAt = performance.now();
    const pen = new Pen(this.blockCanvas, this.theme);
    const grid = (this.blockGrid = gridFor(blocks ? blocks.count : 0, width, this.blockRoom || 0));
    this.blockRoom = grid.height;
    pen.begin(width, grid.height);
    this.sayBlocks(blocks);
    if (blocks) this.drawCells(pen, blocks, grid, picked);
    else pen.text("no blocks yet", 2, 10, { color: this.theme.soft });
  },

  // The request under the cursor, else the one whose card is open: its blocks stand out.
  markedRequest(blocks) {
    const here = this.blockCursor != null && blocks.holders?.get(this.blockCursor);
    if (here) return here[0][0];
    return this.picked && this.picked.lane === this.scrubLane() ? this.picked.row : null;
  },

  drawCells(pen, blocks, { cell, columns }, picked) {
    const { ctx, ratio } = pen;
    const { owners, kinds } = this.config;
    const size = cell - (cell >= 5 ? 1 : 0.5);
    const at = (i) => [(i % columns) * cell, Math.floor(i / columns) * cell + 2];
    const looks = new Map([[FREE, this.theme.faint], [CACHED, hatch(ctx, kinds.find((kind) => kind.name === "cached").color, ratio)], [SHARED, this.theme.ink]]);
    const groups = new Map();
    for (let i = 0; i < blocks.count; i += 1) {
      const look = blocks.owners[i] < 0 ? blocks.owners[i] : blocks.owners[i] % owners.length;
      if (!groups.has(look)) groups.set(look, []);
      groups.get(look).push(i);
    }
    for (const [look, list] of groups) {
      ctx.fillStyle = this.theme.faint;
      if (look !== FREE) for (const i of list) if (blocks.filled[i] < 1) ctx.fillRect(...at(i), size, size);
      ctx.fillStyle = looks.get(look) || owners[look];
      ctx.beginPath();
      for (const i of list) {
        const [x, y] = at(i);
        const height = look === FREE ? size : Math.max(1, size * blocks.filled[i]);
        ctx.rect(x, y + size - height, size, height);
      }
      ctx.fill();
    }
    this.markCells(pen, blocks, { cell, columns }, picked, at);
  },

  markCells({ ctx }, blocks, { cell }, picked, at) {
    ctx.lineWidth = 1.25;
    for (const [i, here] of picked == null ? [] : blocks.holders || []) {
      if (!here.some(([id]) => id === picked)) continue;
      ctx.strokeStyle = here.length > 1 ? this.config.owners[1] : this.theme.ink;
      const [x, y] = at(i);
      ctx.strokeRect(x + 0.6, y + 0.6, cell - 2.2, cell - 2.2);
    }
    if (this.blockCursor == null || this.blockCursor >= blocks.count) return;
    const [x, y] = at(this.blockCursor);
    ctx.strokeStyle = this.theme.ink;
    ctx.lineWidth = 2;
    ctx.strokeRect(x - 0.5, y - 0.5, cell, cell);
  },

  sayBlocks(blocks) {
    const { counts, step, size } = blocks || {};
    const late = blocks && this.scrub && step !== this.scrub.index ? ` (the last picture before step ${this.scrub.index})` : "";
    const words = blocks ? ` of ${this.config.runs[this.scrubLane()].name} ${blocks.under_way ? "during" : "after"} step ${step}${late}: ${counts.own} of one request, ${counts.shared} shared, ${counts.cached} cached, ${counts.free} free` : "";
    if (this.blockWords.textContent === words) return;
    this.blockWords.textContent = words;
    this.blockPanel.dataset.step = blocks ? step : "";
    const held = (blocks?.held || []).slice(0, 40).map(([id, computed, runs]) => {
      const total = (runs || []).reduce((sum, n, i) => sum + (i % 2 ? n : 0), 0);
      return `request ${nameOfId(id)}: ${total} blocks, ${computed} tokens`;
    });
    this.blockCanvas.setAttribute("aria-label", blocks ? `KV blocks${words}. Blocks of ${size} tokens. ${held.join("; ")}. Arrow keys move through the blocks.` : "KV blocks: nothing yet.");
  },

  // -- hover and keys ------------------------------------------------------------------------------------
  pointBlock(x, y) {
    const blocks = this.blocksShown();
    if (!blocks || !this.blockGrid) return;
    const { cell, columns } = this.blockGrid;
    const i = Math.floor((y - 2) / cell) * columns + Math.min(columns - 1, Math.floor(x / cell));
    this.setBlock(i >= 0 && i < ownersOf(blocks).count ? i : null);
  },

  leaveBlock() {
    if (this.blockCursor != null) this.setBlock(null);
  },

  setBlock(i) {
    this.blockCursor = i;
    this.blockTip.hidden = i == null;
    if (i != null) {
      const { cell, columns } = this.blockGrid;
      this.blockTip.textContent = this.wordsOfBlock(this.blocksShown(), i);
      const x = (i % columns) * cell;
      const flip = x > (columns * cell) / 2;
      Object.assign(this.blockTip.style, { top: `${Math.floor(i / columns) * cell + cell + 8}px`, left: flip ? "" : `${x}px`, right: flip ? `${columns * cell - x}px` : "" });
    }
    this.drawBlocks();
  },

  wordsOfBlock(blocks, i) {
    ownersOf(blocks);
    if (blocks.groups) {
      const [own, shared, cached, owner] = blocks.groups[i];
      const most = owner >= 0 ? `, most of them of request ${nameOfId(owner)}` : "";
      return `blocks ${i * blocks.per} to ${Math.min(blocks.blocks, (i + 1) * blocks.per) - 1}: ${own} of one request, ${shared} shared, ${cached} cached${most}`;
    }
    const here = blocks.holders.get(i) || [];
    if (!here.length) return `block ${i}: ${blocks.owners[i] === CACHED ? "full, held by the prefix cache alone" : "free"}`;
    const filled = Math.max(...here.map(([, tokens]) => tokens));
    return `block ${i}: ${here.map(([id]) => `request ${nameOfId(id)}`).join(", ")}; ${filled} of ${blocks.size} slots filled`;
  },

  keyBlock(event) {
    const blocks = this.blocksShown();
    const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.blockGrid?.columns, ArrowDown: this.blockGrid?.columns };
    if (event.key === "Enter") return this.pickBlock();
    if (!blocks || !(event.key in moves)) return;
    event.preventDefault();
    const i = this.blockCursor == null ? 0 : this.blockCursor + moves[event.key];
    if (i >= 0 && i < ownersOf(blocks).count) this.setBlock(i);
    this.twin.textContent = this.blockTip.textContent;
  },

  pickBlock() {
    const here = this.blockCursor != null && this.blocksShown()?.holders?.get(this.blockCursor);
    if (here) this.explain(this.scrubLane(), here[0][0]);
  },
});

// Cells as large as fit: never lower than before, so that the page does not jump.
function gridFor(count, width, before) {
  if (!count) return { cell: 14, columns: Math.floor(width / 14), height: Math.max(20, before) };
  let cell = 16;
  while (cell > 3 && Math.ceil(count / Math.floor(width / cell)) * cell > 132) cell -= 1;
  const columns = Math.floor(width / cell);
  return { cell, columns, height: Math.ceil(count / columns) * cell + 6 };
}

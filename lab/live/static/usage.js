// How much of the machine is used: what this computer reports, and achieved over peak where a peak is known.

Object.assign(View.prototype, {
  knowsPeak() {
    return this.store.lanes.some((lane) => lane.peaks && (lane.numbers.mfu || lane.numbers.mbu));
  },

  usageLines(smooth) {
    const { store, config } = this;
    if (!config.measured) {
      const busy = store.lanes.map((lane, i) => ({
        points: seriesPoints(lane, "busy", smooth).map(([t, v]) => [t, 100 * Math.min(1, v)]), color: config.runs[i].color }));
      return ["Engine busy", "% of simulated time with a step under way", busy];
    }
    const sources = Object.assign({}, ...store.lanes.map((lane) => lane.usage.sources));
    const name = sources.gpu0 ? "gpu0" : "process";
    const series = store.lanes.map((lane, i) => ({ points: usagePoints(lane, name), color: config.runs[i].color }));
    const flops = store.lanes.map((lane) => lane.numbers.flops_per_s).filter(Boolean).pop();
    const work = flops ? `; the model computes ${(flops / 1e9).toFixed(flops < 1e10 ? 1 : 0)} GFLOP/s` : "";
    const text = sources[name] ? `%, ${sources[name][1]}${work}` : store.head.notes[0] || "%";
    return [name === "gpu0" ? "GPU utilisation" : "CPU utilisation", text, series];
  },

  // Solid: share of peak FLOP/s; dashed: of peak memory bandwidth.
  peakLines(smooth) {
    const { store, config } = this;
    return store.lanes.flatMap((lane, i) => {
      if (!lane.peaks) return [];
      const share = (name, peak) => seriesPoints(lane, name, smooth).map(([t, v]) => [t, (100 * v) / peak]);
      const { flops, bytes_per_s: moved } = lane.peaks;
      const color = config.runs[i].color;
      return [{ points: share("flops", flops), color }, { points: share("bytes", moved), color, dash: [4, 3] }];
    });
  },

  peakWords() {
    const lane = [...this.store.lanes].reverse().find((entry) => entry.begun && entry.peaks);
    if (!lane) return "";
    const { mfu, mbu } = lane.numbers;
    const now = mfu == null ? "" : ` · so far MFU ${percent(mfu)}, MBU ${percent(mbu)}`;
    return `%, FLOP/s solid, bytes/s dashed${now} · peak: ${lane.peaks.source}`;
  },
});

function usagePoints(lane, name) {
  const column = Object.keys(lane.usage.sources).indexOf(name) + 1;
  return lane.usage.points.map((point) => [point[0], point[column]]);
}

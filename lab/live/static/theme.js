// Colours of the page we are in: JupyterLab's variables where they exist, else what the background tells.

function parseColor(text) {
  const hex = /^#([0-9a-f]{3,8})$/i.exec(text.trim());
  if (hex) {
    const h = hex[1].length < 6 ? [...hex[1]].map((c) => c + c).join("") : hex[1];
    return [0, 2, 4].map((i) => parseInt(h.slice(i, i + 2), 16));
  }
  const rgb = /rgba?\(([^)]+)\)/i.exec(text);
  return rgb ? rgb[1].split(/[\s,/]+/).slice(0, 3).map(Number) : null;
}

function luminance(color) {
  const [r, g, b] = color.map((v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function alpha(color, a) {
  const [r, g, b] = parseColor(color) || [128, 128, 128];
  return `rgba(${r}, ${g}, ${b}, ${a})`;
}

function readTheme(el) {
  const css = getComputedStyle(el);
  const read = (name) => css.getPropertyValue(name).trim();
  let background = read("--jp-layout-color0");
  if (!parseColor(background)) {
    background = matchMedia("(prefers-color-scheme: dark)").matches ? "#111111" : "#ffffff";
  }
  const dark = luminance(parseColor(background)) < 0.3;
  const ink = dark ? "#f2f2f2" : "#1c1c1e";
  return {
    dark,
    background,
    ink,
    soft: dark ? "#b4b4ba" : "#5c5c66",
    faint: dark ? "rgba(255,255,255,0.10)" : "rgba(20,20,40,0.08)",
    line: dark ? "rgba(255,255,255,0.22)" : "rgba(20,20,40,0.20)",
    panel: dark ? "rgba(255,255,255,0.035)" : "rgba(20,30,60,0.025)",
    font: read("--jp-ui-font-family") || "system-ui, sans-serif",
  };
}

// Call `changed` when the page switches theme; returns a function that stops watching.
function watchTheme(changed) {
  const observer = new MutationObserver(changed);
  const options = { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name", "class"] };
  observer.observe(document.body, options);
  const media = matchMedia("(prefers-color-scheme: dark)");
  media.addEventListener("change", changed);
  return () => {
    observer.disconnect();
    media.removeEventListener("change", changed);
  };
}

const hatches = new Map();

// Diagonal stripes of `color`, sharp at the given device pixel ratio; `backward` ones lean to the left.
function hatch(ctx, color, ratio, weight = 0.9, backward = false) {
  const key = `${color} ${ratio} ${weight} ${backward}`;
  if (!hatches.has(key)) {
    const size = Math.round(5 * ratio);
    const tile = Object.assign(document.createElement("canvas"), { width: size, height: size });
    const pen = tile.getContext("2d");
    pen.fillStyle = alpha(color, 0.28);
    pen.fillRect(0, 0, size, size);
    if (backward) pen.setTransform(-1, 0, 0, 1, size, 0);
    pen.strokeStyle = alpha(color, weight);
    pen.lineWidth = 1.25 * ratio;
    pen.beginPath();
    for (const shift of [-size, 0, size]) {
      pen.moveTo(shift - 1, size + 1);
      pen.lineTo(shift + size + 1, -1);
    }
    pen.stroke();
    hatches.set(key, tile);
  }
  const pattern = ctx.createPattern(hatches.get(key), "repeat");
  pattern.setTransform(new DOMMatrix().scale(1 / ratio));
  return pattern;
}

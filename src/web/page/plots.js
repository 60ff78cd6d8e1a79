// Plots of what was reported: a card a metric, made when it comes into sight. Band from the least to the greatest of all
// ranks, line of the mean; what was lost with an attempt is faint. All cards share one x axis and its zoom.

import { api, clock, colour, COLOURS, download, fill, h, inexact, inSight, label, number, saveBlob, stamp, seconds, whenSeen } from "./base.js";
import { rank } from "./runs.js";
import { onState, set, state } from "./state.js";

const NAMES = 200, HEIGHT = 178, BESIDE = 72, LIVE_MS = 1000, SAMPLED_MS = 3000, NAMES_MS = 5000, TOGETHER = 16;
const AWAY = { left: -10, top: -10 };
const axes = ["step", "epoch", "number", "relative", "time"];
const MOST = 8e307;
/* What marks of an axis lie apart: uPlot's own end at 5e15. */
const STEPS = Array.from({ length: 324 }, (_, i) => [1, 2, 2.5, 5].map((digit) => Number(`${digit}e${i - 16}`))).flat();

export function plotControls(place, onEnd, metrics = []) {
  const now = state();
  const select = h("select", { title: "x axis", onchange: () => set({ x: select.value === "step" ? "" : select.value, from: "", to: "" }) },
    axes.map((name) => h("option", { value: name }, name)), metrics.filter((m) => rank(m.name) > 0).slice(0, 40).map((m) => h("option", { value: "metric:" + m.name }, m.name.slice(0, 40))));
  select.value = now.x || "step";
  if (!select.value) select.value = "step";
  const smooth = h("input", { type: "range", min: 0, max: 0.99, step: 0.01, value: now.smooth || 0, oninput: () => (set({ smooth: +smooth.value || "" }), (told.textContent = smooth.value)) });
  const told = h("span", {}, now.smooth || "0");
  const log = h("input", { type: "checkbox", checked: now.log === "1", onchange: () => set({ log: log.checked ? "1" : "" }) });
  const all = h("button", { class: "bare", onclick: () => set({ from: "", to: "" }) }, "whole range");
  const zoomed = () => (all.hidden = !state().from && !state().to);
  onState(zoomed, onEnd);
  zoomed();
  fill(place, all, h("label", {}, "x", select), h("label", {}, "smooth", smooth, told), h("label", {}, log, "log y"));
}

/* Debiased exponential mean over buckets. */
function smoothed(values, weight) {
  let mean = 0, n = 0;
  return values.map((value) => {
    if (value === null || value === undefined) return null;
    n++;
    mean = mean * weight + value * (1 - weight);
    return mean / (1 - weight ** n);
  });
}

/* Marks of a time axis that lie so many seconds apart. */
function timeMark(value, apart) {
  const text = stamp(value);
  return apart >= 86400 ? clock(value).replace(/ [\d:]+$/, "") : apart >= 60 ? text.slice(11, 16) : apart >= 1 ? text.slice(11, 19) : text.slice(14, 23);
}

const xText = (x, value) => (x === "time" ? stamp(value) : x === "relative" ? seconds(value) : number(value, 7));

/* The lines of a reply in one table over x, as uPlot has it. */
function table(reply, weight, shape) {
  const tables = [], series = [{}], bands = [];
  const dim = colour("faint");
  reply.series.forEach((line) => {
    const own = shape.colour(line);
    const values = line.mean.map((value) => value ?? null);
    const at = series.length;
    const columns = [line.at];
    const push = (column, options) => (columns.push(column), series.push(options));
    if (line.lost) {
      push(values, { stroke: dim, width: 1, dash: [3, 3], line });
    } else if (shape.band) {
      push(line.max, { stroke: own + "55", width: 0.6, points: { show: false }, line, role: "max" });
      push(line.min, { stroke: own + "55", width: 0.6, points: { show: false }, line, role: "min" });
      bands.push({ series: [at, at + 1], fill: own + "26" });
      if (weight > 0) push(values, { stroke: own + "50", width: 1, points: { show: false }, line });
      push(weight > 0 ? smoothed(values, weight) : values, { stroke: own, width: 1.5, line, role: "mean" });
    } else {
      push(weight > 0 ? smoothed(values, weight) : values, { stroke: own, width: 1.3, line, role: "mean" });
    }
    tables.push(columns);
  });
  const data = tables.length > 1 ? uPlot.join(tables, tables.map((one) => one.map(() => 2))) : tables[0] || [[]];
  return { data, series, bands };
}

/* Plots that are asked for in one go are one request, of which the reports are read once: twelve of them, so that the first are
 * drawn while the next are made, and as many names as an address has room for. */
const ASKED = 12, NAMED = 2500;
const waiting = new Map();

function send({ parameters, plots }) {
  for (let size = 0; plots.length; size = 0) {
    let n = 0;
    while (n < plots.length && n < ASKED && (n === 0 || size + encodeURIComponent(plots[n].metric).length < NAMED)) size += encodeURIComponent(plots[n++].metric).length;
    const some = plots.splice(0, n);
    api("series", { metric: some.map((one) => one.metric), ...parameters }).then((reply) => some.forEach(({ metric, resolve }, i) => {
      const own = (lines) => lines.filter((line) => line.metric === metric);
      resolve({ ...reply, ...reply.metrics[i], series: own(reply.series), marks: own(reply.marks) });
    }), (error) => some.forEach((one) => one.reject(error)));
  }
}

function plot(metric, parameters) {
  const key = JSON.stringify(parameters);
  if (!waiting.has(key)) {
    waiting.set(key, { parameters, plots: [] });
    queueMicrotask(() => {
      const asked = waiting.get(key);
      waiting.delete(key);
      send(asked);
    });
  }
  return new Promise((resolve, reject) => waiting.get(key).plots.push({ metric, resolve, reject }));
}

/* One card. `runs`: one or several; of several each has its colour. `unheard`: nobody tells when more is there than a sample. */
export class Plot {
  constructor({ runs, metric, colours, onSeries, wide, unheard }) {
    Object.assign(this, { runs, metric, onSeries, unheard, lines: false, cards: null });
    this.colours = colours || COLOURS;
    this.read = h("span", { class: "read", "aria-live": "polite" });
    this.box = h("div", { class: "plot", tabIndex: 0, role: "img", onkeydown: (event) => this.key(event), onblur: () => this.u?.setCursor(AWAY) });
    this.foot = h("div", { class: "foot" });
    const tool = (name, title, call) => h("button", { class: "bare", title, onclick: call }, name);
    this.logButton = tool("log", "logarithmic y axis", () => ((this.log = !(this.log ?? state().log === "1")), this.draw()));
    this.linesButton = tool("ranks", "lines of ranks", () => this.toggle());
    this.element = h("section", { class: wide ? "card wide" : "card", "data-metric": metric },
      h("div", { class: "head" }, label(metric, 48, "title cut"), this.read), this.box, this.foot,
      h("div", { class: "tools" }, runs.length === 1 && this.linesButton, this.logButton, tool("csv", "what is drawn", () => this.u && this.csv()), tool("svg", "as a picture", () => this.u && this.picture())));
    whenSeen(this.element, () => this.stale !== false && this.load());
    this.watcher = new ResizeObserver(() => {
      const width = this.box.clientWidth;
      if (width === this.width) return;
      this.width = width;
      this.u?.setSize({ width, height: HEIGHT });
    });
    this.watcher.observe(this.box);
  }

  toggle() {
    if (this.runs.length > 1) return;
    this.lines = !this.lines;
    this.linesButton.classList.toggle("on", this.lines);
    this.load();
  }

  /* What is drawn is old: it is asked for again when it is seen. `reports`: as many there are, where that is all that is new. */
  touch(reports) {
    this.newest = Math.max(this.newest ?? 0, reports ?? 0);
    if (reports && (this.loading || this.reply?.reports >= reports)) return;
    this.stale = true;
    if (this.element.inSight) this.load();
  }

  /* The browser itself tells of what is in sight when it has painted it, without a plot. */
  begin(unseen) {
    if (this.stale !== false && (unseen || inSight(this.element))) this.load();
  }

  async load() {
    if (this.loading) return void (this.again = true);
    this.loading = true;
    this.again = this.stale = false;
    this.width ??= this.box.clientWidth;
    const buckets = Math.max(100, Math.min(1000, Math.round(this.width - BESIDE) || 400)); // one for each pixel of the axis
    try {
      this.reply = await this.ask({ ...this.zoom(), buckets });
      for (const line of this.reply.series) line.at = line.x.map((x, i) => (x + line.x_last[i]) / 2); // a mean is drawn amid what it is of
      this.draw();
      this.again ||= this.newest > this.reply.reports;
      this.onSeries?.(this.metric, this.reply);
    } catch (error) {
      if (error.status !== 410) fill(this.foot, h("span", { class: "bad" }, error.message));
      this.stale ||= !(error.status < 500); // a server that is busy, or gone for a moment
    }
    this.loading = false;
    clearTimeout(this.later);
    if (this.over) return;
    if (this.again || this.stale) this.later = setTimeout(() => this.load(), this.again ? 0 : LIVE_MS);
    else if (this.unheard && this.reply && !this.reply.exact) this.later = setTimeout(() => this.touch(), SAMPLED_MS);
  }

  zoom() {
    return state();
  }

  ask({ x, from, to, buckets }) {
    return plot(this.metric, { run: this.runs.map((run) => run.id), x, from, to, buckets, what: this.lines ? "ranks" : "band", history: "all" });
  }

  value(value, digits) {
    return number(value, digits);
  }

  who(line) {
    return this.lines ? `r${line.rank} ` : this.runs.length > 1 ? this.runs.find((run) => run.id === line.run).name.slice(0, 12) + " " : "";
  }

  /* Lines that are told by their names. */
  get several() {
    return this.lines || this.runs.length > 1;
  }

  get banded() {
    return !this.lines && this.runs.length <= 4;
  }

  colour(line) {
    if (this.lines) return this.colours[this.reply.series.indexOf(line) % this.colours.length];
    return this.runs.length > 1 ? this.colours[this.runs.findIndex((run) => run.id === line.run) % this.colours.length] : colour("accent");
  }

  draw() {
    const reply = this.reply;
    if (!reply) return;
    const { smooth, log } = state(), { from, to } = this.zoom();
    const isLog = this.log ?? log === "1";
    this.logButton.classList.toggle("on", isLog);
    const shape = { band: this.banded, colour: (line) => this.colour(line) };
    const { data, series, bands } = table(reply, Math.min(0.999, +smooth || 0), shape);
    this.told();
    this.box.ariaLabel = [this.metric, this.rest, this.foot.textContent].filter(Boolean).join(", ");
    const form = JSON.stringify([isLog, reply.x, series.map((one) => [one.stroke, one.width])]);
    if (this.u && this.form === form) {
      series.forEach((one, i) => i && Object.assign(this.u.series[i], { line: one.line }));
      this.u.setData(data, false);
      this.scale(data, from, to);
      return;
    }
    this.form = form;
    this.u?.destroy();
    this.u = new uPlot(this.options(series, bands, isLog, data), data); // comes into the box when it is drawn
    this.scale(data, from, to);
  }

  scale(data, from, to) {
    const xs = data[0];
    if (!xs.length) return;
    let low = from ? +from : xs[0], high = to ? +to : xs[xs.length - 1];
    if (!from && !to) this.whole = [low, high];
    if (low === high) (low -= 0.5), (high += 0.5);
    this.u.batch(() => this.u.setScale("x", { min: low, max: high }));
  }

  options(series, bands, isLog, data) {
    const isTime = this.reply.x === "time", grid = { stroke: colour("line"), width: 1 }, ticks = { stroke: colour("line"), width: 1, size: 4 };
    const axis = { stroke: colour("dim"), font: "11px system-ui", grid, ticks };
    const several = data[0].length > 60;
    return {
      width: this.width || 360, height: HEIGHT, padding: [6, 18, 0, 0], bands,
      legend: { show: false },
      cursor: { sync: { key: "x", scales: ["x", null] }, drag: { x: true, y: false, setScale: false }, points: { size: 5, width: 1 }, y: false },
      scales: { x: { time: isTime, auto: false }, y: { distr: isLog ? 3 : 1, range: (u, low, high) => this.range(low, high, isLog) } },
      axes: [{ ...axis, size: 26, values: (u, marks, at, space, apart) => marks.map((mark) => (isTime ? timeMark(mark, apart) : this.reply.x === "relative" ? seconds(mark) : number(mark, 6))) },
        { ...axis, size: this.axis ?? 54, incrs: isLog ? undefined : STEPS, values: (u, marks) => marks.map((mark) => (mark === null ? "" : this.value(mark, 3))) }],
      series: series.map((one) => ({ spanGaps: true, pxAlign: 0, points: several ? { show: false } : { size: 3 }, ...one })),
      hooks: { draw: [(u) => this.marks(u)], setCursor: [(u) => this.cursor(u)], setSelect: [(u) => this.select(u)],
        ready: [(u) => {
          if (u === this.u) this.box.append(u.root); // not before: uPlot asks where it is, for which the whole page is laid out
          u.syncRect(true);
          u.over.addEventListener("dblclick", () => set({ from: "", to: "" }));
          let down = 0;
          u.over.addEventListener("mousedown", (event) => (down = event.clientX));
          u.over.addEventListener("click", (event) => Math.abs(event.clientX - down) < 3 && event.detail === 1 && this.toggle());
        }] },
    };
  }

  range(low, high, isLog) {
    if (low === null || low === undefined || !Number.isFinite(low)) return isLog ? [0.1, 1] : [0, 1];
    if (isLog) return [10 ** Math.floor(Math.log10(Math.max(low, 1e-12))), 10 ** Math.ceil(Math.log10(Math.max(high, 1e-11)))];
    if (low === high) return low === 0 ? [-1, 1] : [low - Math.abs(low) / 10, high + Math.abs(high) / 10];
    const room = Math.min(high * 0.06 - low * 0.06, MOST); // half of the range may be beyond a double
    let first = +(low - room).toPrecision(12);
    if (first >= 1e16 && first < 1e21) first = 0; // uPlot marks no axis whose beginning has more than 17 digits
    return [Math.max(first < low ? first : low - room, -MOST), Math.min(high + room, MOST)];
  }

  select(u) {
    if (u.select.width < 3) return;
    const from = u.posToVal(u.select.left, "x"), to = u.posToVal(u.select.left + u.select.width, "x");
    u.setSelect({ width: 0, height: 0, left: 0, top: 0 }, false);
    this.show(from, to);
  }

  show(from, to) {
    set({ from: String(+from.toPrecision(12)), to: String(+to.toPrecision(12)) });
  }

  /* What the mouse does, by keys. */
  key(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key], sized = { "+": 0.5, "=": 0.5, "-": 2 }[event.key];
    if (!this.u || event.ctrlKey || event.metaKey || event.altKey) return;
    if (by) this.move(event.shiftKey ? by * 10 : by);
    else if (sized) this.resize(sized);
    else if (event.key === "Enter") this.toggle();
    else if (event.key === "Escape") this.u.setCursor(AWAY);
    else return;
    event.preventDefault();
  }

  move(by) {
    const { cursor, scales, data: [xs] } = this.u, { min, max } = scales.x;
    const first = xs.findIndex((x) => x >= min), last = xs.findLastIndex((x) => x <= max);
    const at = cursor.left >= 0 ? cursor.idx + by : by > 0 ? first : last;
    if (first >= 0 && last >= first) this.u.setCursor({ left: this.u.valToPos(xs[Math.max(first, Math.min(last, at))], "x"), top: 0 });
  }

  resize(by) {
    const { cursor, scales } = this.u, { min, max } = scales.x, at = cursor.left >= 0 ? this.u.posToVal(cursor.left, "x") : (min + max) / 2;
    const from = at - (at - min) * by, to = at + (max - at) * by;
    if (this.whole && from <= this.whole[0] && to >= this.whole[1]) set({ from: "", to: "" });
    else this.show(from, to);
  }

  /* Attempts as dashed lines, checkpoints as ticks below, what is not finite as a mark above. */
  marks(u) {
    const { ctx, bbox } = u, ratio = devicePixelRatio || 1;
    ctx.save();
    ctx.font = `${10 * ratio}px system-ui`;
    for (const mark of this.reply.marks) {
      const x = u.valToPos(mark.x, "x", true);
      if (x < bbox.left - 1 || x > bbox.left + bbox.width + 1 || this.runs.length > 1) continue;
      if (mark.kind === "attempt" || mark.kind === "hung" || mark.kind === "hardware") {
        ctx.strokeStyle = mark.kind === "attempt" ? colour("mark") : colour("bad");
        ctx.setLineDash([4 * ratio, 3 * ratio]);
        ctx.lineWidth = ratio;
        ctx.beginPath();
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.stroke();
        ctx.setLineDash([]);
      } else if (mark.kind === "checkpoint") {
        ctx.fillStyle = colour("good");
        ctx.fillRect(x - ratio, bbox.top + bbox.height - 5 * ratio, 2 * ratio, 5 * ratio);
      } else {
        ctx.fillStyle = colour("bad");
        ctx.beginPath();
        ctx.moveTo(x - 4 * ratio, bbox.top);
        ctx.lineTo(x + 4 * ratio, bbox.top);
        ctx.lineTo(x, bbox.top + 7 * ratio);
        ctx.fill();
      }
    }
    ctx.restore();
  }

  /* Below the plot: what was lost, what is not finite, how much was looked at. */
  told() {
    const reply = this.reply, parts = [];
    const own = reply.series.filter((line) => !line.lost), first = own[0];
    const bad = own.reduce((sum, line) => sum + line.nonfinite.reduce((a, b) => a + b, 0), 0);
    const mark = reply.marks.find((one) => one.kind === "nonfinite");
    if (bad) parts.push(h("span", { class: "bad" }, "▼ " + (mark ? mark.text : `${number(bad)} not finite`)));
    if (!reply.exact) parts.push(inexact(reply));
    if (this.lines && reply.ranks > own.length) parts.push(`${own.length} of ${reply.ranks} ranks, those farthest from the median`);
    if (reply.series.some((line) => line.lost)) parts.push("dashed: lost with an earlier attempt");
    if (reply.x !== "step" && (state().x || "step") === "step") parts.push("over " + reply.x);
    const end = first ? first.mean.length - 1 : -1;
    this.rest = end >= 0 && !this.several && first.mean[end] !== null ? number(first.mean[end]) : "";
    fill(this.read, this.rest);
    fill(this.foot, parts.length ? parts.flatMap((part, i) => (i ? [" · ", part] : [part])) : "");
    if (!reply.series.length) fill(this.foot, h("span", { class: "dim" }, "no numbers here"));
  }

  cursor(u) {
    const at = u.cursor.idx;
    if (at === null || at === undefined || u.cursor.left < 0) return void (this.read.textContent = this.rest);
    const parts = [xText(this.reply.x, u.data[0][at])];
    const x = u.data[0][at];
    for (const line of this.reply.series) {
      const i = line.at.indexOf(x);
      if (i < 0 || line.lost || line.mean[i] === null) continue;
      const least = line.rank_min ? ` @${line.rank_min[i]}` : "", most = line.rank_max ? ` @${line.rank_max[i]}` : "";
      parts.push(this.who(line) + this.value(line.mean[i]) + (this.several || line.n[i] < 2 ? "" : `  min ${this.value(line.min[i])}${least}  max ${this.value(line.max[i])}${most}`));
    }
    this.read.textContent = parts.slice(0, 5).join("   ");
  }

  csv() {
    const columns = ["x", "x_last", "n", "nonfinite", "min", "max", "mean", "first", "last", "rank_min", "rank_max"];
    const rows = [["run", "metric", "rank", "lost", ...columns].join(",")];
    const cell = (value) => (/^[=+\-@]/.test(value) && typeof value === "string" ? "'" + value : /[",\n]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : value);
    for (const line of this.reply.series)
      line.x.forEach((x, i) => rows.push([cell(this.runs.find((run) => run.id === line.run)?.name ?? line.run), cell(line.metric ?? this.metric), line.rank ?? cell(line.who ?? ""), line.lost ? 1 : 0, ...columns.map((name) => line[name]?.[i] ?? "")].join(",")));
    saveBlob(new Blob([rows.join("\r\n") + "\r\n"], { type: "text/csv" }), this.metric.replace(/[^\w.-]/g, "_") + ".csv");
  }

  /* The same lines, drawn as SVG. */
  picture() {
    const u = this.u, W = 640, H = 320, L = 60, B = 30, T = 26;
    const { min: x0, max: x1 } = u.scales.x, { min: y0, max: y1 } = u.scales.y, isLog = u.scales.y.distr === 3;
    const f = (value) => (isLog ? Math.log10(value) : value);
    const px = (x) => (L + ((x - x0) / (x1 - x0)) * (W - L - 10)).toFixed(1), py = (y) => (H - B - ((f(y) - f(y0)) / (f(y1) - f(y0))) * (H - B - T)).toFixed(1);
    const text = (value) => String(value).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
    const out = [`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${W} ${H}" font-family="system-ui,sans-serif" font-size="11"><rect width="${W}" height="${H}" fill="#fff"/>`,
      `<text x="${L}" y="16" font-weight="600" font-size="13">${text(this.metric)}</text><path d="M${L} ${T}V${H - B}H${W - 10}" fill="none" stroke="#999"/>`];
    for (let i = 0; i <= 4; i++) {
      const x = x0 + ((x1 - x0) * i) / 4, y = isLog ? 10 ** (f(y0) + ((f(y1) - f(y0)) * i) / 4) : y0 + ((y1 - y0) * i) / 4;
      out.push(`<text x="${px(x)}" y="${H - 12}" text-anchor="middle" fill="#666">${text(xText(this.reply.x, x))}</text><text x="${L - 6}" y="${+py(y) + 4}" text-anchor="end" fill="#666">${text(this.value(y, 3))}</text>`);
    }
    for (const line of this.reply.series) {
      const points = line.at.map((x, i) => [x, line.mean[i], line.min[i], line.max[i]]).filter(([x, y]) => y !== null && x >= x0 && x <= x1);
      const own = line.lost ? "#999" : this.colour(line);
      if (!line.lost && !this.lines) out.push(`<path d="M${points.map(([x, , , y]) => px(x) + " " + py(y)).join("L")}L${points.reverse().map(([x, , y]) => px(x) + " " + py(y)).join("L")}Z" fill="${own}" opacity=".18"/>`);
      out.push(`<path d="M${points.map(([x, y]) => px(x) + " " + py(y)).join("L")}" fill="none" stroke="${own}" stroke-width="1.5"/>`);
    }
    saveBlob(new Blob([out.join("\n") + "</svg>\n"], { type: "image/svg+xml" }), this.metric.replace(/[^\w.-]/g, "_") + ".svg");
  }

  end() {
    this.over = true;
    clearTimeout(this.later);
    this.watcher.disconnect();
    this.u?.destroy();
  }
}

/* Several metrics of a run in one card. */
class Together extends Plot {
  constructor({ run, metrics, unheard }) {
    super({ runs: [run], metric: metrics.join(", "), unheard });
    this.metrics = metrics;
    this.foot.classList.add("keys");
    this.linesButton.remove();
  }

  toggle() {}

  async ask({ x, from, to, buckets }) {
    const replies = await Promise.all(this.metrics.map((metric) => plot(metric, { run: this.runs[0].id, x, from, to, buckets, history: "all" })));
    const [first] = replies, drawn = replies.filter((reply) => reply.x === first.x);
    this.others = this.metrics.filter((_, i) => replies[i].x !== first.x);
    const marks = drawn.flatMap((reply, i) => reply.marks.filter((mark) => mark.kind === "nonfinite" || i === 0));
    return { ...first, exact: drawn.every((reply) => reply.exact), scanned: Math.min(...drawn.map((reply) => reply.scanned)), series: drawn.flatMap((reply) => reply.series), marks };
  }

  who(line) {
    return line.metric + " ";
  }

  get several() {
    return true;
  }

  get banded() {
    return this.metrics.length <= 4;
  }

  colour(line) {
    return this.colours[this.metrics.indexOf(line.metric) % this.colours.length];
  }

  told() {
    super.told();
    this.foot.prepend(...this.metrics.filter((metric) => !this.others.includes(metric)).map((metric) => {
      const bar = h("i", { class: "key" });
      bar.style.setProperty("--c", this.colour({ metric }));
      return h("span", {}, bar, label(metric, 40, ""));
    }), this.others.length ? `not over ${this.reply.x}: ${this.others.length} of them ` : "");
  }
}

/* Cards of the metrics: losses first, then those most reported; "a/b" that is none under "a". `wanted`: names that are asked for
 * before they are seen. */
export function grid(place, { runs, metrics, wanted, onSeries, news, onEnd, filter, together }) {
  const cards = new Map(), folded = new Set();
  const draw = () => {
    const words = (filter?.value || "").trim();
    let pattern = null;
    try {
      pattern = words && new RegExp(words, "i");
    } catch {
      pattern = null;
    }
    const here = metrics.filter((metric) => !metric.text && (!words || (pattern ? pattern.test(metric.name) : metric.name.includes(words))));
    const sorted = here.sort((a, b) => rank(a.name) - rank(b.name) || b.n - a.n);
    if (together) together.parentNode.hidden = !words;
    if (together?.checked && words && sorted.length > 1) {
      const names = sorted.slice(0, TOGETHER).map((metric) => metric.name), key = JSON.stringify(names);
      if (!cards.has(key)) cards.set(key, new Together({ run: runs[0], metrics: names, unheard: !news }));
      return fill(place, cards.get(key).element, sorted.length > TOGETHER && h("div", { class: "group" }, `the first ${TOGETHER} of ${sorted.length}`));
    }
    const groups = new Map([["", []]]);
    for (const metric of sorted.slice(0, NAMES)) {
      const group = rank(metric.name) > 0 && metric.name.includes("/") ? metric.name.split("/")[0] : "";
      if (!groups.has(group)) groups.set(group, []);
      groups.get(group).push(metric);
    }
    const shown = [], plots = [];
    for (const [group, list] of groups) {
      if (group) shown.push(h("div", { class: "group" }, h("button", { class: "bare", "aria-expanded": String(!folded.has(group)), onclick: () => (folded.has(group) ? folded.delete(group) : folded.add(group), draw()) }, (folded.has(group) ? "▸ " : "▾ ") + group + "  " + list.length)));
      if (!group || !folded.has(group))
        for (const metric of list) {
          if (!cards.has(metric.name)) cards.set(metric.name, new Plot({ runs, metric: metric.name, onSeries, unheard: !news }));
          plots.push(cards.get(metric.name));
          shown.push(cards.get(metric.name).element);
        }
    }
    fill(place, shown, sorted.length > NAMES && h("div", { class: "group" }, `${sorted.length - NAMES} more: filter by name`),
      !shown.length && h("div", { class: "note group" }, words ? "No metric has such a name." : "Nothing was reported yet. In a worker: ", !words && h("code", {}, "trainyard.report({\"loss\": loss})")));
    for (const plot of plots) plot.begin(wanted?.has(plot.metric));
  };
  let last = {};
  onState(() => {
    const now = state(), asks = ["x", "from", "to"].some((key) => now[key] !== last[key]);
    const draws = ["smooth", "log"].some((key) => now[key] !== last[key]);
    last = now;
    for (const card of cards.values()) if (asks) card.touch();
      else if (draws) card.draw();
  }, onEnd);
  last = state();
  news?.((event, data) => {
    const whole = event === "index" && data.scanned >= 1;
    for (const card of cards.values()) if (event === "reports") card.touch(data.id);
      else if (whole && card.reply && !card.reply.exact) card.touch();
  });
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const repaint = () => cards.forEach((card) => ((card.form = null), card.draw()));
  dark.addEventListener("change", repaint);
  onEnd(() => {
    dark.removeEventListener("change", repaint);
    for (const card of cards.values()) card.end();
  });
  filter?.addEventListener("input", () => (set({ metrics: filter.value }), draw()));
  together?.addEventListener("change", () => (set({ together: together.checked ? "1" : "" }), draw()));
  draw();
  return { redraw: (list) => ((metrics = list), draw()) };
}

export async function plots({ run, main, controls, news, onEnd }) {
  const filter = h("input", { class: "filter", type: "search", placeholder: "filter metrics", size: 12, value: state().metrics || "" });
  const together = h("input", { type: "checkbox", checked: state().together === "1" });
  const cards = h("div", { class: "grid" });
  const metrics = await api(`runs/${run.id}/metrics`);
  const whole = (kind) => download(kind, "all reports", `runs/${run.id}/metrics.${kind}`, `${run.name.replace(/[^\w.-]/g, "_")}.${kind}`);
  const box = h("span");
  fill(controls, filter, h("label", { title: "all that the filter leaves" }, together, "in one plot"), whole("csv"), whole("jsonl"), box);
  plotControls(box, onEnd, metrics);
  fill(main, cards);
  const shown = grid(cards, { runs: [run], metrics, news, onEnd, filter, together });
  let known = metrics.length, asked = known ? Date.now() : 0, due = 0;
  const look = async () => {
    asked = Date.now();
    const list = await api(`runs/${run.id}/metrics`).catch(() => null); // the bar above says why
    due = 0;
    if (!list) return;
    if (list.length !== known) shown.redraw(list);
    known = list.length;
  };
  news((event) => event === "reports" && (due ||= setTimeout(look, asked + NAMES_MS - Date.now())));
  onEnd(() => clearTimeout(due));
}


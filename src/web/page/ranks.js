// Ranks: a heat map over time, the slowest first, and how one of them differs from all.

import { add, api, colour, COLOURS, fill, h, inexact, inOrder, label, number, seconds, stamp } from "./base.js";
import { rank as likeness } from "./runs.js";
import { onState, set, state } from "./state.js";

const PAGE = 100, LIVE_MS = 2000;

/* Dark to bright, evenly by eye (viridis, 9 of its colours). */
const STOPS = [[68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141], [39, 173, 129], [92, 200, 99], [170, 220, 50], [253, 231, 37]];

function shade(share) {
  const at = Math.min(0.9999, Math.max(0, share)) * (STOPS.length - 1), i = Math.floor(at), rest = at - i;
  return STOPS[i].map((value, c) => Math.round(value + (STOPS[i + 1][c] - value) * rest));
}

export const measure = (metric, value) => (metric === "@interval" || metric === "@lag" ? seconds(value) : number(value));

/* The values between which the colours go: the 2 of 100 cells with the highest and with the lowest have the last colours,
 * so that a few do not hide how the others differ. */
function colourRange(cells) {
  const counts = new Uint32Array(256);
  for (const cell of cells) counts[cell]++;
  const all = cells.length - counts[0];
  let low = 0;
  for (let value = 1, seen = 0; value < 256; value++) {
    seen += counts[value];
    if (!low && seen > all * 0.02) low = value;
    if (seen >= all * 0.98) return [low, Math.max(value, low + 1)];
  }
  return [1, 255];
}

function paint(canvas, heat, cells) {
  canvas.width = heat.columns;
  canvas.height = heat.rows;
  canvas.style.height = Math.max(80, Math.min(420, heat.rows * Math.max(2, Math.min(18, Math.floor(360 / heat.rows))))) + "px";
  const context = canvas.getContext("2d"), image = context.createImageData(heat.columns, heat.rows);
  for (let column = 1, gap = 0; column < heat.columns; column++) { // a few steps that no report has go on with what was before
    let empty = true;
    for (let row = 0; row < heat.rows && empty; row++) empty = !cells[row * heat.columns + column];
    gap = empty ? gap + 1 : 0;
    for (let row = 0; row < heat.rows && empty && gap < 8; row++) cells[row * heat.columns + column] = cells[row * heat.columns + column - 1];
  }
  const [low, high] = colourRange(cells);
  for (let i = 0; i < cells.length; i++) {
    if (!cells[i]) continue;
    const [r, g, b] = shade((cells[i] - low) / (high - low));
    image.data.set([r, g, b, 255], i * 4);
  }
  context.putImageData(image, 0, 0);
}

function scale() {
  const canvas = h("canvas", { width: 110, height: 1 }), context = canvas.getContext("2d");
  for (let i = 0; i < 110; i++) {
    context.fillStyle = `rgb(${shade(i / 110)})`;
    context.fillRect(i, 0, 1, 1);
  }
  return canvas;
}

/* What times of other nodes, and so lags, are worth: the clock that goes farthest wrong, and the least that is known of any. */
function clocks(offsets) {
  if (!offsets?.length) return "";
  const wrong = offsets.reduce((most, one) => (Math.abs(one.seconds) - one.uncertainty > Math.abs(most.seconds) - most.uncertainty ? one : most));
  const ahead = Math.abs(wrong.seconds) > wrong.uncertainty && ` the clock of ${wrong.node} is ${seconds(Math.abs(wrong.seconds))} ${wrong.seconds > 0 ? "ahead" : "behind"}, which is taken off;`;
  return [ahead, ` clocks of ${offsets.length} node${offsets.length > 1 ? "s" : ""} are known to ${seconds(Math.max(...offsets.map((one) => one.uncertainty)))}`];
}

export async function ranks({ run, main, controls, news, onEnd }) {
  const metrics = (await api(`runs/${run.id}/metrics`)).filter((metric) => !metric.text).sort((a, b) => likeness(a.name) - likeness(b.name) || b.n - a.n);
  const select = h("select", {}, ["@interval", "@lag", "@rate", ...metrics.map((metric) => metric.name)].map((name) => h("option", { value: name }, { "@interval": "interval", "@lag": "lag", "@rate": "reports/s" }[name] || name.slice(0, 60))));
  const axis = h("select", {}, ["number", "step", "epoch", "relative", "time"].map((name) => h("option", {}, name)));
  fill(controls, h("label", {}, "of", select), h("label", {}, "over", axis));
  const tip = h("div", { class: "tip", role: "status", hidden: true });
  const canvas = h("canvas", { class: "heat", tabIndex: 0, role: "img", "aria-label": "ranks over time: arrows go through it, Enter compares the rank with all" }), rows = h("div", { class: "axis" }), columns = h("div", { class: "xaxis" });
  const low = h("span"), high = h("span"), told = h("span", { class: "dim" });
  const slowest = h("span"), body = h("tbody"), more = h("button", { hidden: true }, "more"), chart = h("div"), chartHead = h("h2");
  const head = ["rank", "node", "devices", "state", "last report", "interval", "lag", "pid"];
  fill(main, h("h2", {}, slowest), h("div", { class: "heatbox" }, rows, canvas, columns),
    h("div", { class: "legend" }, h("span", { class: "scale" }, low, scale(), high), told),
    h("div", { class: "split" }, h("div", {}, h("h2", {}, "Ranks, the slowest first"), h("table", {}, h("thead", {}, h("tr", {}, head.map((name, i) => h("th", { class: i === 0 || i > 3 ? "num" : "" }, name)))), body), more),
      h("div", {}, chartHead, chart)));
  document.body.append(tip);
  let heat = null, cells = null, counts = null, over = false, chosen = state().rank ? +state().rank : null, asked = false, wanted = PAGE;
  const heats = inOrder(), lists = inOrder(), histograms = inOrder();

  const drawHeat = async () => {
    const metric = state().heat || "@interval", x = state().heatx || "number";
    select.value = metric;
    axis.value = x;
    try {
      heat = await heats(api(`runs/${run.id}/heat`, { metric, x, rows: 256, columns: 400 }));
    } catch (error) {
      return error.name === "AbortError" || fill(told, h("span", { class: "error" }, error.message));
    }
    cells = Uint8Array.from(atob(heat.cells), (c) => c.charCodeAt(0));
    fill(told, inexact(heat), heat.ranks_per_row > 1 && ` ${heat.ranks_per_row} ranks a row: the greatest`, metric === "@lag" && clocks(run.clock_offsets));
    if (!heat.rows || !heat.columns) return fill(told, "nothing to draw yet");
    const [first, last] = colourRange(cells), value = (cell) => heat.min + ((heat.max - heat.min) * (cell - 1)) / 254;
    paint(canvas, heat, cells);
    fill(low, first > 1 && `from ${measure(metric, heat.min)}, `, measure(metric, value(first)));
    fill(high, measure(metric, value(last)), last < 255 && ` and more, up to ${measure(metric, heat.max)}`);
    const marks = Math.min(heat.rows, 8);
    fill(rows, Array.from({ length: marks }, (_, i) => {
      const row = Math.floor((i * heat.rows) / marks), mark = h("span", {}, "rank " + row * heat.ranks_per_row);
      mark.style.top = ((row + 0.5) / heat.rows) * 100 + "%";
      return mark;
    }));
    fill(columns, h("span", {}, along(heat.from)), h("span", {}, heat.x), h("span", {}, along(heat.to)));
  };

  const along = (value) => (heat.x === "relative" ? seconds(value) : heat.x === "time" ? stamp(value).slice(11, 19) : number(value, 6));
  const cell = (event) => {
    const box = canvas.getBoundingClientRect();
    return { row: Math.min(heat.rows - 1, Math.floor(((event.clientY - box.top) / box.height) * heat.rows)), column: Math.min(heat.columns - 1, Math.floor(((event.clientX - box.left) / box.width) * heat.columns)) };
  };
  const tell = (row, column, x, y) => {
    const value = cells[row * heat.columns + column], first = row * heat.ranks_per_row;
    const last = Math.min(heat.ranks, first + heat.ranks_per_row) - 1;
    tip.hidden = false;
    tip.textContent = `${last > first ? `ranks ${first}-${last}` : `rank ${first}`}  ${heat.x} ${along(heat.from + ((heat.to - heat.from) * (column + 0.5)) / heat.columns)}  ${value ? measure(state().heat || "@interval", heat.min + ((heat.max - heat.min) * (value - 1)) / 254) : "none"}`;
    tip.style.left = Math.min(innerWidth - tip.offsetWidth - 8, x + 12) + "px";
    tip.style.top = y + 14 + "px";
  };
  canvas.addEventListener("mousemove", (event) => {
    if (!heat?.rows) return;
    const { row, column } = cell(event);
    tell(row, column, event.clientX, event.clientY);
  });
  let at = null; // the cell that keys have come to
  canvas.addEventListener("keydown", (event) => {
    const by = event.shiftKey ? 10 : 1, way = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -by], ArrowRight: [0, by] }[event.key];
    if (!heat?.rows || !(way || (event.key === "Enter" && at))) return;
    event.preventDefault();
    if (!way) return void choose(at.row * heat.ranks_per_row);
    const near = (value, most) => Math.max(0, Math.min(most - 1, value)), box = canvas.getBoundingClientRect();
    at = at ? { row: near(at.row + way[0], heat.rows), column: near(at.column + way[1], heat.columns) } : { row: 0, column: 0 };
    tell(at.row, at.column, box.left + ((at.column + 0.5) / heat.columns) * box.width, box.top + ((at.row + 0.5) / heat.rows) * box.height);
  });
  for (const away of ["mouseleave", "blur"]) canvas.addEventListener(away, () => (tip.hidden = true));
  canvas.addEventListener("click", (event) => heat?.rows && choose(cell(event).row * heat.ranks_per_row));

  const drawRanks = async () => {
    const reply = await lists(api(`runs/${run.id}/ranks`, { from: 0, limit: wanted }));
    const usual = reply.usual_interval, first = reply.items[0];
    const last = reply.items.reduce((most, one) => (one.lag > (most?.lag ?? 0) ? one : most), null);
    fill(slowest, first && first.interval && usual && first.interval > usual * 1.15 ? [`slowest: rank ${first.rank}`, first.node !== null && first.node !== undefined ? ` (node ${first.node_name ?? first.node}${first.devices ? ", " + first.devices : ""})` : "", `: ${seconds(first.interval)} between reports, usual ${seconds(usual)}`]
      : usual ? `${seconds(usual)} between reports` : "Ranks", last && last.lag > 0.001 && last.lag > (usual || 0) / 10 ? ` · farthest behind: rank ${last.rank}, ${seconds(last.lag)} after the first` : "");
    fill(body, reply.items.map((one) => h("tr", { class: "link" + (one.rank === chosen ? " at" : ""), onclick: () => choose(one.rank) },
      h("td", { class: "num" }, h("button", { class: "bare", title: "against all" }, one.rank)), h("td", {}, label(one.node_name ?? one.node ?? "-", 24)), h("td", {}, label(one.devices || "-", 24)),
      h("td", {}, h("span", { class: "state " + one.state }, one.state)), h("td", { class: "num" }, one.number ? number(one.number) : "-"),
      h("td", { class: "num" }, seconds(one.interval), usual && one.interval > usual * 1.15 ? h("span", { class: "f1" }, ` ×${number(one.interval / usual, 2)}`) : ""),
      h("td", { class: "num" }, seconds(one.lag)), h("td", { class: "num dim" }, one.pid || "-"))));
    more.hidden = reply.ranks <= reply.items.length;
    chosen ??= first?.rank ?? null;
    if (!asked && chosen !== null) (asked = true), choose(chosen, false);
  };
  more.addEventListener("click", () => ((wanted += 1000), drawRanks().catch((error) => fill(slowest, h("span", { class: "error" }, error.message)))));

  async function choose(rank, told = true) {
    chosen = rank;
    if (told) set({ rank });
    for (const row of body.children) row.classList.toggle("at", +row.firstChild.textContent === rank);
    const metric = state().heat || "@interval";
    fill(chartHead, label(select.selectedOptions[0]?.textContent ?? metric, 40, ""), ` of rank ${rank} against all`);
    try {
      counts = await histograms(api(`runs/${run.id}/histogram`, { metric, rank, bins: 40, near: 1 }));
      fill(chart, histogram(metric, rank, counts, chart.clientWidth));
    } catch (error) {
      if (error.name !== "AbortError") fill(chart, h("div", { class: "error" }, error.message));
    }
  }
  select.addEventListener("change", () => set({ heat: select.value === "@interval" ? "" : select.value }));
  axis.addEventListener("change", () => set({ heatx: axis.value === "number" ? "" : axis.value }));
  let last = state();
  onState(() => {
    const now = state();
    if (now.heat !== last.heat || now.heatx !== last.heatx) drawHeat().then(() => !over && chosen !== null && choose(chosen, false));
    last = now;
  }, onEnd);
  let due = 0;
  news((event, data) => {
    const sampled = counts && !counts.exact, whole = event === "index" && data.scanned >= 1 && heat && (!heat.exact || sampled);
    if (!(event === "reports" || whole) || due) return;
    due = setTimeout(() => {
      due = 0;
      if (!over) Promise.all([drawHeat(), drawRanks(), whole && sampled && choose(chosen, false)]).catch(() => {});
    }, LIVE_MS);
  });
  onEnd(() => ((over = true), clearTimeout(due), tip.remove()));
  await Promise.all([drawHeat(), drawRanks()]);
}

/* Shares of the values of all ranks, and of the chosen one, per bin. */
function histogram(metric, rank, reply, wide) {
  const canvas = h("canvas", { class: "plot" }), W = Math.max(200, wide - 22), H = 190, B = 20, ratio = devicePixelRatio || 1;
  canvas.width = W * ratio;
  canvas.height = H * ratio;
  canvas.style.width = "100%";
  const context = canvas.getContext("2d"), n = reply.all.length;
  context.scale(ratio, ratio);
  const sum = (list) => list.reduce((a, b) => a + b, 0) || 1;
  const all = reply.all.map((value) => value / sum(reply.all)), own = (reply.chosen || []).map((value) => value / sum(reply.chosen));
  const most = Math.max(...all, ...own, 1e-9), width = W / n;
  const far = n > 1 && reply.edges[n] - reply.edges[n - 1] > 1.5 * (reply.edges[1] - reply.edges[0]); // few values are far above all others
  context.fillStyle = colour("faint") + "66";
  all.forEach((value, i) => context.fillRect(i * width, H - B - (value / most) * (H - B - 6), width - 1, (value / most) * (H - B - 6)));
  context.strokeStyle = COLOURS[1];
  context.lineWidth = 1.8;
  context.beginPath();
  own.forEach((value, i) => {
    const y = H - B - (value / most) * (H - B - 6);
    context.lineTo(i * width, y);
    context.lineTo((i + 1) * width, y);
  });
  context.stroke();
  context.fillStyle = colour("dim");
  context.font = "11px system-ui";
  for (let i = 0; i <= 4; i++) {
    const value = reply.edges[i === 4 && far ? n - 1 : Math.round((i * n) / 4)];
    context.textAlign = i === 0 ? "left" : i === 4 ? "right" : "center";
    context.fillText(measure(metric, value), (W * i) / 4, H - 5);
  }
  const key = (name, c) => {
    const mark = h("i");
    mark.style.background = c;
    return h("span", {}, mark, name);
  };
  const box = h("div", { class: "card" });
  add(box, [canvas, h("div", { class: "legend" }, key("all ranks", colour("faint")), key("rank " + rank, COLOURS[1]), far && `last: more, up to ${measure(metric, reply.edges[n])}`, inexact(reply))]);
  return box;
}

// Hardware: a plot for each thing that the samplers of the nodes told of, over time, and what they said last. Of a few devices
// each is a line; of many, nodes are bands, and of many nodes all are one.

import { api, bytes, clock, COLOURS, fill, h, label, number, stamp } from "./base.js";
import { live, num, table, td } from "./parts.js";
import { Plot } from "./plots.js";
import { onState, set, state } from "./state.js";

const LINES = 16;
const SCOPES = [["node", "", "node"], ["device", "GPU", "devices"], ["worker", "rank", "workers"]];
const CONSTANT = /_size$|_max$|_limited$/; // said in the table
const FIRST = ["device_utilization", "device_activity", "device_power", "device_memory", "device_temperature", "device_clock", "node_cpu", "node_memory", "node_receive"];
const scopeOf = (what) => SCOPES.find(([scope]) => what.startsWith(scope + "_"));
const title = (what) => what.replaceAll("_", " ");

function unitText(unit, value) {
  if (value === null || value === undefined) return "-";
  const [of, per] = unit.split("/");
  const rate = per ? "/" + per : "";
  if (of === "bytes") return (value < 0 ? "-" : "") + bytes(Math.abs(value)) + rate;
  if (of === "ratio") return number(value * 100, 3) + " %";
  if (of === "hertz") return number(value / 1e6, 4) + " MHz";
  if (unit === "joules/s" || of === "watts") return number(value, 4) + " W";
  if (of === "celsius") return number(value, 3) + " °C";
  return number(value, 3) + (unit === "seconds/s" || of === "cores" ? " cores" : rate);
}

/* A card as those of what was reported, whose lines are nodes and devices. */
class UsagePlot extends Plot {
  constructor(run, what, by) {
    super({ runs: [run], metric: what, colours: COLOURS });
    this.by = by;
    this.axis = 70; // "12.4 MiB/s"
    this.lines = by === "each";
    this.foot.classList.add("keys");
    fill(this.element.querySelector(".head"), label(title(what), 48, "title cut"), this.read);
    this.linesButton.remove();
  }

  toggle() {}

  zoom() {
    const { x, from, to } = state();
    return x === "time" ? { from, to } : {};
  }

  show(from, to) {
    set({ x: "time" });
    super.show(from, to);
  }

  async ask({ from, to, buckets }) {
    const reply = await api(`runs/${this.runs[0].id}/usage`, { what: this.metric, over: this.by, node: state().node, from, to, buckets });
    const scope = scopeOf(this.metric);
    const series = reply.series.map((line) => ({ ...line, run: this.runs[0].id, rank: null, lost: false, nonfinite: [], who: [state().node && line.number !== null ? "" : line.node ?? "all nodes", line.number === null ? "" : `${scope[1]} ${line.number}`].join(" ").trim() }));
    return { series, marks: [], exact: true, scanned: 1, x: "time", all: reply.lines, unit: series[0]?.unit ?? "" };
  }

  colour(line) {
    return COLOURS[this.reply.series.indexOf(line) % COLOURS.length];
  }

  value(value) {
    return unitText(this.reply.unit, value);
  }

  who(line) {
    return this.reply.series.length > 1 ? line.who + " " : "";
  }

  /* Of several lines the two that a person looks for: the lowest and the highest. */
  cursor(u) {
    const at = u.cursor.idx, x = u.data[0][at];
    if (this.reply.series.length < 2 || at === null || at === undefined || u.cursor.left < 0) return super.cursor(u);
    const here = this.reply.series.map((line) => [line, line.mean[line.at.indexOf(x)] ?? null]).filter(([, value]) => value !== null).sort((a, b) => a[1] - b[1]);
    const tell = ([line, value]) => line.who + " " + this.value(value);
    this.read.textContent = [stamp(x).slice(11, 19), ...(here.length > 1 ? [tell(here[0]), tell(here.at(-1))] : here.map(tell))].join("   ");
  }

  told() {
    const { series, all } = this.reply;
    const key = (line) => {
      const bar = h("i", { class: "key" });
      bar.style.setProperty("--c", this.colour(line));
      return h("span", {}, bar, label(line.who, 24, ""));
    };
    this.rest = series.length === 1 && series[0].mean.length ? this.value(series[0].mean.at(-1)) : "";
    fill(this.read, this.rest);
    fill(this.foot, all > series.length && `${series.length} of ${all}: `, series.length > 1 ? series.map(key) : series.length ? label(series[0].who, 40, "dim") : h("span", { class: "dim" }, "nothing in this time"));
  }
}

/* -- what was said last */

function scopeTable(last, [scope, head]) {
  const own = last.filter((one) => one.what.startsWith(scope + "_"));
  const whats = [...new Set(own.map((one) => one.what))], numbers = [...new Set(own.map((one) => one.number))].sort((a, b) => a - b);
  const said = new Map(own.map((one) => [one.what + " " + one.number, one.text]));
  return own.length > 0 && table(["#" + head, ...whats.map((what) => "#" + title(what.slice(scope.length + 1)))],
    numbers.map((at) => h("tr", {}, num(at ?? ""), whats.map((what) => num(said.get(what + " " + at) ?? "-")))), "fit");
}

async function faults(run) {
  const { events } = await api(`runs/${run.id}/events`, { kind: "hardware" });
  return events.length > 0 && [h("h2", {}, "Devices that broke, or are held down"), table(["when", "#attempt", "what"], events.slice(-20).reverse().map((event) =>
    h("tr", {}, td(h("span", { title: stamp(event.time) }, clock(event.time))), num(event.attempt || ""), h("td", { class: event.data.fault === "throttled" ? "long" : "long f1" }, label(event.data.cause, 160)))), "fit")];
}

function chooser(nodes) {
  const select = h("select", { title: "node", onchange: () => set({ node: select.value }) }, h("option", { value: "" }, "all nodes"),
    nodes.slice(0, 1000).map((node) => h("option", { value: node.node }, node.name.slice(0, 60))));
  select.value = state().node || "";
  return nodes.length > 1 && select;
}

export function hardware(context) {
  const { run, main, controls, onEnd } = context;
  const grid = h("div", { class: "grid" }), said = h("div", { class: "apart" }), broken = h("div", { class: "apart" });
  let cards = new Map(), shown = null, whole = null;
  const plots = (nodes) => {
    const chosen = nodes.filter((node) => !state().node || node.node === state().node);
    const sizes = new Map();
    for (const node of chosen) for (const one of node.last) if (scopeOf(one.what) && !CONSTANT.test(one.what)) sizes.set(one.what, (sizes.get(one.what) ?? 0) + 1);
    const whats = [...sizes.keys()].sort((a, b) => (FIRST.indexOf(a) + 1 || 99) - (FIRST.indexOf(b) + 1 || 99));
    const over = (what) => (sizes.get(what) <= LINES ? "each" : chosen.length <= LINES ? "node" : "all");
    const form = JSON.stringify([state().node, whats.map((what) => [what, over(what)])]);
    if (form === shown) return cards.forEach((card) => card.touch());
    shown = form;
    cards.forEach((card) => card.end());
    cards = new Map(whats.map((what) => [what, new UsagePlot(run, what, over(what))]));
    fill(grid, [...cards.values()].map((card) => card.element));
  };
  const draw = async () => {
    const { nodes } = await api(`runs/${run.id}/usage`);
    if (!nodes.length) return fill(main, h("div", { class: "note" }, "No samples of hardware were kept for this run. ", h("code", {}, "trainyard run --sample 10s"), " keeps them."));
    if (!grid.isConnected) {
      whole = h("button", { class: "bare", onclick: () => set({ from: "", to: "" }) }, "whole range");
      fill(controls, whole, chooser(nodes));
      fill(main, broken, grid, said);
    }
    whole.hidden = !state().from && !state().to;
    fill(broken, await faults(run));
    plots(nodes);
    const few = nodes.filter((node) => !state().node || node.node === state().node).slice(0, 64);
    fill(said, few.map((node) => [h("h2", {}, label(node.name, 40, ""), node.stale && " (stale)", " ", h("span", { class: "dim" }, clock(node.at))), SCOPES.map((scope) => scopeTable(node.last, scope))]),
      few.length < nodes.length && !state().node && h("p", { class: "dim" }, `${nodes.length - few.length} nodes more: choose one above.`));
  };
  onState(() => state().tab === "hardware" && draw().catch(context.fail), onEnd);
  onEnd(() => cards.forEach((card) => card.end()));
  return live(context, ["run", "reports", "usage"], draw);
}

// The list of runs, and runs beside each other.

import { api, clock, COLOURS, fill, h, inexact, inOrder, label, limited, number, plain, seconds, svg, watch, whenSeen } from "./base.js";
import { grid, plotControls } from "./plots.js";
import { link, set, state } from "./state.js";

const SCREEN = 100, COMPARED = 16;
const queue = limited(4);

/* The metric that tells best how a run goes: loss-like first. */
export function rank(name) {
  if (/(^|[/_])(train_)?loss$/.test(name)) return 0;
  if (/loss|perplexity|error/.test(name)) return 1;
  return /^(step|global_step|iteration|training_iteration|epoch)$/.test(name) ? 9 : 5;
}

const numeric = (metrics) => Object.entries(metrics || {}).filter(([, value]) => typeof value === "number");

function lastMetrics(metrics) {
  const named = numeric(metrics).sort((a, b) => rank(a[0]) - rank(b[0])).slice(0, 2);
  return named.length ? named.map(([name, value]) => h("span", { class: "chip" }, label(name, 18, ""), " ", h("b", {}, number(value)))) : h("span", { class: "dim" }, "-");
}

function spark(run) {
  const name = numeric(run.metrics).map(([key]) => key).sort((a, b) => rank(a) - rank(b))[0];
  const box = svg("svg", { class: "spark", viewBox: "0 0 100 20", preserveAspectRatio: "none" });
  if (!name || rank(name) === 9) return box;
  whenSeen(box, () => {
    if (box.asked === run.seconds) return;
    box.asked = run.seconds;
    queue(async () => box.isConnected && api("series", { run: run.id, metric: name, buckets: 50 })).then((reply) => {
      const line = reply && reply.series.find((one) => one.mean.some((value) => value !== null));
      if (!line) return;
      const ys = line.mean.map((value, i) => [line.x[i], value]).filter(([, value]) => value !== null);
      const low = Math.min(...ys.map(([, y]) => y)), high = Math.max(...ys.map(([, y]) => y));
      const first = ys[0][0], last = ys.at(-1)[0];
      const at = ys.map(([x, y]) => `${(last > first ? ((x - first) / (last - first)) * 100 : 50).toFixed(1)},${(high > low ? 18.5 - ((y - low) / (high - low)) * 17 : 10).toFixed(1)}`);
      box.replaceChildren(svg("title", {}, [plain(name), inexact(reply)].filter(Boolean).join(", ")), svg("path", { d: "M" + at.join("L") }));
    }, () => {});
  });
  return box;
}

function stateOf(run) {
  const status = run.state === "failed" && run.exit_status ? " " + run.exit_status : "";
  return run.quiet_s ? h("span", { class: "state quiet" }, "quiet " + seconds(run.quiet_s)) : h("span", { class: "state " + run.state }, run.state + status);
}

function row(run, chosen, choose) {
  const box = h("input", { type: "checkbox", checked: chosen.has(run.id), "aria-label": "compare " + plain(run.name), onclick: (event) => {
    event.stopPropagation();
    choose(run.id, box.checked);
  } });
  const open = () => set({ run: run.id, filter: "", chosen: "" }, false);
  return h("tr", { class: "link", onclick: open },
    h("td", {}, box),
    h("td", {}, h("a", { href: link({ run: run.id }), onclick: (event) => event.stopPropagation() }, label(run.name, 32))),
    h("td", {}, stateOf(run)),
    h("td", { class: "num" }, number(run.workers), run.nodes > 0 && h("span", { class: "dim" }, " on " + number(run.nodes))),
    h("td", { class: "when", title: new Date(run.began * 1000).toString() }, clock(run.began)),
    h("td", { class: "num" }, seconds(run.seconds)),
    h("td", { class: "chipline" }, lastMetrics(run.metrics)),
    h("td", {}, spark(run)),
    h("td", { class: "why" }, run.attempts > 1 || run.cause ? [h("span", { class: "dim" }, run.attempts, run.cause ? ": " : ""), run.cause ? label(run.cause, 80, "") : ""] : h("span", { class: "dim" }, run.attempts)));
}

const HEADS = [["", ""], ["name", ""], ["state", ""], ["workers", "num"], ["started", ""], ["took", "num"], ["last metrics (rank 0)", ""], ["", ""], ["attempts", ""]];

function matches(run, words) {
  const text = [run.name, run.state, run.quiet_s ? "quiet" : "", ...Object.keys(run.metrics || {})].join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
}

function counts(all) {
  const running = all.filter((run) => (run.state === "running" || run.state === "waiting") && !run.quiet_s).length;
  const quiet = all.filter((run) => run.quiet_s).length;
  return [running > 0 && h("span", {}, h("b", {}, running), " running"), quiet > 0 && h("span", {}, h("b", {}, quiet), " quiet"),
    h("span", {}, h("b", {}, all.length - running - quiet), " ended")];
}

export async function runs({ top, main, bar, fail, onEnd }) {
  const known = new Map();
  let cursor, unreadable = [], most = SCREEN;
  const chosen = new Set((state().chosen || "").split(",").filter(Boolean));
  const filter = h("input", { class: "filter", type: "search", placeholder: "filter: name state metric", value: state().filter || "" });
  const count = h("span", { class: "facts" }), compared = () => [...chosen].filter((id) => known.has(id));
  const compareButton = h("button", { class: "compare", onclick: () => set({ compare: compared().slice(0, COMPARED).join(","), filter: "", chosen: "" }, false) });
  fill(top, bar(filter, count, h("span", { class: "grow" }), compareButton));
  const body = h("tbody"), more = h("div", { class: "note small" }), broken = h("div");
  const rows = new Map();

  const draw = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const all = [...known.values()].sort((a, b) => b.began - a.began);
    const here = all.filter((run) => matches(run, words));
    fill(count, counts(all));
    const n = compared().length;
    compareButton.hidden = n < 2;
    fill(compareButton, `compare ${n}`, n > COMPARED ? ` (the first ${COMPARED})` : "");
    fill(body, here.slice(0, most).map((run) => {
      const kept = rows.get(run.id);
      if (kept && kept.run === run) return kept.row;
      const made = row(run, chosen, choose);
      rows.set(run.id, { run, row: made });
      return made;
    }));
    fill(more, here.length > most ? `${here.length - most} more` : "");
    if (!all.length && !unreadable.length)
      fill(main, h("div", { class: "note" }, "No runs here yet. To begin: ", h("code", {}, "trainyard run -n 4 -- PROG")));
    else if (!body.isConnected)
      fill(main, h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, HEADS.map(([name, cls]) => h("th", { class: cls }, name)))), body)), more, broken);
    fill(broken, unreadable.length > 0 && [h("h2", {}, "Unreadable"),
      h("table", {}, unreadable.map((run) => h("tr", {}, h("td", {}, label(run.name, 60)), h("td", { class: "error" }, label(run.error, 200)))))]);
  };
  const choose = (id, on) => {
    if (on) chosen.add(id);
    else chosen.delete(id);
    set({ chosen: [...chosen].join(",") });
    draw();
  };
  const lists = inOrder();
  const load = async () => {
    const reply = await lists(api("runs", { after: cursor }));
    cursor = reply.cursor;
    for (const run of reply.runs) known.set(run.id, run);
    for (const id of [...(reply.gone || []), ...reply.unreadable.map((run) => run.id)]) known.delete(id);
    unreadable = reply.unreadable;
    draw();
  };
  filter.addEventListener("input", () => (set({ filter: filter.value }), (most = SCREEN), draw()));
  whenSeen(more, () => more.textContent && ((most += SCREEN), draw()));
  await load();
  onEnd(watch(undefined, (event) => event === "run" && load().catch(fail), fail));
}

/* -- runs beside each other */

function differences(all) {
  const settings = ["command", "workers", "nodes", "host", "version"];
  return settings.filter((key) => new Set(all.map((run) => JSON.stringify(run[key]))).size > 1);
}

export async function compare({ top, main, bar, onEnd }, ids) {
  const all = await Promise.all(ids.slice(0, COMPARED).map(async (id) => ({ ...(await api("runs/" + id)), id })));
  const lists = await Promise.all(all.map((run) => api(`runs/${run.id}/metrics`)));
  const controls = h("span", { class: "controls" });
  fill(top, bar(h("span", { class: "dim" }, "/"), h("h1", {}, `${all.length} runs compared`), h("span", { class: "grow" })), h("div", { class: "tabs" }, controls));
  const names = new Map();
  for (const list of lists) for (const metric of list) names.set(metric.name, { ...metric, n: (names.get(metric.name)?.n || 0) + metric.n });
  const shown = [...names.values()].filter((metric) => rank(metric.name) < 9).sort((a, b) => rank(a.name) - rank(b.name) || b.n - a.n).slice(0, 6);
  const key = (i) => {
    const mark = h("span", { class: "key" });
    mark.style.setProperty("--c", COLOURS[i]);
    return mark;
  };
  const table = h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "run"), h("th", {}, "state"), h("th", { class: "num" }, "took"),
    shown.map((metric) => [h("th", { class: "num" }, label(metric.name, 24)), h("th", {}, "best")]))),
    h("tbody", {}, all.map((run, i) => h("tr", {}, h("td", { class: "nowrap" }, key(i), h("a", { href: link({ run: run.id }) }, label(run.name, 40))), h("td", {}, stateOf(run)),
      h("td", { class: "num" }, seconds(run.seconds)),
      shown.map((metric) => [h("td", { class: "num" }, number(lists[i].find((one) => one.name === metric.name)?.last)),
        h("td", { class: "best dim", "data-run": run.id, "data-metric": metric.name }, "-")])))));
  const differs = differences(all);
  const cards = h("div", { class: "grid" });
  fill(main, h("div", { class: "scroll" }, table), differs.length > 0 && [h("h2", {}, "Settings that differ"), h("table", { class: "diff" },
    h("thead", {}, h("tr", {}, h("th", {}, "run"), differs.map((name) => h("th", {}, name)))),
    h("tbody", {}, all.map((run) => h("tr", {}, h("td", {}, label(run.name, 40)), differs.map((name) => h("td", {}, label(run[name] ?? "-", 90)))))))],
    h("h2", {}, "Plots"), cards);
  const best = (metric, reply) => {
    for (const cell of table.querySelectorAll("td.best")) {
      if (cell.dataset.metric !== metric) continue;
      const own = reply.series.filter((line) => line.run === cell.dataset.run && !line.lost);
      const up = /acc|f1|auc|reward|score|tokens|throughput|per_sec|bleu|rouge/i.test(metric);
      const values = own.flatMap((line) => (up ? line.max : line.min)).filter((value) => value !== null);
      if (values.length) cell.textContent = [number(up ? Math.max(...values) : Math.min(...values)), inexact(reply)].filter(Boolean).join(", ");
    }
  };
  plotControls(controls, onEnd);
  grid(cards, { runs: all, metrics: [...names.values()], wanted: new Set(shown.map((metric) => metric.name)), onSeries: best, onEnd });
}

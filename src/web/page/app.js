// The page: which part is shown, the bar above it, keys. A run's parts are in the other files.

import { add, api, clock, endView, fill, h, label, number, Refused, seconds, setToken, takeToken, watch } from "./base.js";
import { compare, runs } from "./runs.js";
import { plots } from "./plots.js";
import { ranks } from "./ranks.js";
import { logs } from "./logs.js";
import { hardware } from "./hardware.js";
import { attempts, checkpoints, placement, stacks, time } from "./parts.js";
import { link, onState, set, state } from "./state.js";

const PARTS = { plots, ranks, time, attempts, checkpoints, logs, placement, hardware, stacks };
const top = document.getElementById("top"), main = document.getElementById("main");

let shown = null; // the key of what is shown, its run, and what ends it
let ends = [];
let due = 0; // to ask again

/* What it leaves on the page until the next is there nobody can press: it would act on what has ended. */
function end() {
  endView();
  clearTimeout(due);
  for (const one of ends) one();
  ends = [];
  for (const one of [main, ...top.querySelectorAll(".controls, input, .compare")]) one.inert = true;
}

export function fail(error, place = main) {
  if (error.name === "AbortError") return;
  if (error instanceof Refused) {
    const input = h("input", { type: "password", size: 36, placeholder: "token", autofocus: true });
    fill(place, h("form", { class: "note", onsubmit: (event) => {
      event.preventDefault();
      setToken(input.value.trim());
      location.reload();
    } }, h("p", {}, "This page needs its token: open the address that ", h("code", {}, "trainyard dashboard"), " printed, or give the token."),
      input, " ", h("button", {}, "Open")));
    fill(top, bar());
    return;
  }
  fill(place, h("div", { class: "note error" }, error.message));
}

/* What the server cannot answer for now is asked for again, once the page is seen. */
function failed(error, again = () => ((shown = null), show())) {
  fail(error);
  if (error.name === "AbortError" || error.status < 500) return;
  const ask = () => (document.hidden ? wait() : again()), wait = () => (due = setTimeout(ask, 2000));
  wait();
}

const bar = (...children) => h("div", { class: "bar" }, h("a", { class: "brand", href: "#" }, "trainyard"), children,
  h("button", { class: "bare", title: "keys", "aria-label": "keys", onclick: help }, "?"));

/* -- one run */

const fact = (name, ...value) => h("span", {}, name, name && " ", h("b", {}, ...value));

function facts(run) {
  const some = (count, what, digits) => `${number(count, digits)} ${what}${number(count, digits) === "1" ? "" : "s"}`;
  const best = run.last_checkpoint;
  return [
    h("span", { class: "state " + (run.quiet_s ? "quiet" : run.state) }, run.quiet_s ? "quiet " + seconds(run.quiet_s) : run.state,
      run.exit_status ? " " + run.exit_status : ""),
    fact("", some(run.attempts, "attempt")),
    fact("", some(run.workers, "worker"), run.nodes ? ` on ${some(run.nodes, "node")}` : ""),
    run.metrics?.step !== undefined && fact("step", number(run.metrics.step)),
    run.steps_per_second && fact("", some(run.steps_per_second, "report", 3), "/s a rank"),
    fact("", some(run.reports, "report")),
    best && fact("", label(best, 40)),
    fact("began", clock(run.began)),
    fact("took", seconds(run.seconds)),
  ];
}

function cause(run) {
  if (run.unreadable) return h("div", { class: "cause" }, h("b", {}, "Cannot be read"), label(run.unreadable, 600, "what"));
  if (!run.cause) {
    if (!run.waits_for) return null;
    return h("div", { class: "cause" }, h("b", {}, "Waits"), label(run.waits_for, 300, "what"));
  }
  const rank = run.cause_rank;
  return h("div", { class: "cause" },
    h("b", {}, "First cause"),
    label((rank !== null && rank !== undefined && !new RegExp(`rank ${rank}\\b`).test(run.cause) ? `rank ${rank}: ` : "") + run.cause, 600, "what"),
    h("span", { class: "where" }, run.cause_node && ["node ", label(run.cause_node, 30, ""), "  "],
      rank !== null && rank !== undefined && h("a", { href: link({ run: run.id, tab: "logs", ranks: rank }) }, `log of rank ${rank}`)));
}

function tabs(run, tab) {
  return h("nav", { class: "tabs", "aria-label": "parts of the run" }, Object.keys(PARTS).map((name) =>
    h("a", { href: link({ run: run.id, tab: name }, ["x", "smooth", "log", "from", "to", "metrics", "together"]), class: tab === name ? "on" : "", "aria-current": tab === name && "page" }, name)),
    h("span", { class: "controls", id: "controls" }));
}

async function showRun(id, tab) {
  const run = await api("runs/" + id);
  run.id = id;
  document.title = run.name + " - Trainyard";
  const told = h("span", { class: "facts" }), why = h("div", { role: "status" });
  const draw = () => {
    const now = cause(run);
    fill(told, facts(run));
    if (!now || !why.firstChild?.isEqualNode(now)) fill(why, now); // a reader of the screen says it once
  };
  const heading = h("h1", { tabIndex: -1 }, label(run.name, 60, "name cut"));
  const inTabs = document.activeElement.closest(".tabs"), parts = tabs(run, tab);
  fill(top, bar(h("span", { class: "dim" }, "/"), heading, told, h("span", { class: "grow" }), h("span", { class: "dim", id: "exact" })), parts, why);
  (inTabs ? parts.querySelector(".on") : heading).focus(); // the next Tab goes on from there
  draw();
  fill(main);
  let listeners = [], own = []; // of the part: called with (event, data) as something changes, and at its end
  const tell = (event, data) => listeners.forEach((call) => call(event, data));
  const endPart = () => own.splice(0).forEach((call) => call());
  const context = { run, main, controls: top.querySelector("#controls"), fail, onEnd: (call) => own.push(call), news: (call) => listeners.push(call) };
  const begin = () => {
    endPart();
    listeners = [];
    PARTS[tab](context).catch((error) => away || failed(error, begin));
  };
  let rests = true, again = false, away = false;
  ends.push(() => (away = true), endPart);
  begin();
  const gone = () => {
    endView();
    clearTimeout(due);
    for (const one of ends.splice(1)) one(); // the stream goes on: the run may come again under its name
    fill(main, h("div", { class: "note" }, "The run ", label(run.name), " was deleted meanwhile. ", h("a", { href: "#" }, "All runs")));
  };
  const rest = () => setTimeout(() => {
    rests = false;
    if (again && !away) (again = false), refresh();
  }, 1000);
  const refresh = async () => {
    if (rests) return void (again = true);
    rests = true;
    try {
      const now = await api("runs/" + id);
      Object.assign(run, { quiet_s: null, unreadable: null }, now);
      run.id = id;
      draw();
      tell("facts", {});
    } catch (error) {
      if (away) return;
      if (error.status === 410) return gone();
      // Asked for again: the server tells of a change between its own looks, and none of those may have met what this answer met.
      if (error.status) (run.unreadable = error.message), (again = !document.hidden), draw();
    }
    rest();
  };
  rest();
  ends.unshift(watch(id, (event, data) => {
    if (event === "gone") return away || gone();
    if (away) return void (event === "run" && api("runs/" + id).then(() => ((shown = null), show()), () => {}));
    if (event === "run" || event === "reports") refresh();
    if (event === "index") fill(document.getElementById("exact") ?? h("i"), data.scanned < 1 ? `index ${Math.floor(data.scanned * 100)} %` : "");
    tell(event, data);
  }, fail));
}

/* -- what the address asks for */

function show() {
  const now = state();
  const tab = now.tab in PARTS ? now.tab : "plots";
  const key = now.run ? "run " + now.run + " " + tab : now.compare ? "compare " + now.compare : "runs";
  if (key === shown) return;
  shown = key;
  end();
  const context = { top, main, bar, fail: failed, onEnd: (call) => ends.push(call) };
  document.title = "Trainyard";
  const begun = now.run ? showRun(now.run, tab) : now.compare ? compare(context, now.compare.split(",")) : runs(context);
  const mine = ends;
  begun.catch((error) => mine === ends && failed(error)).then(() => mine === ends && (main.inert = false));
}

/* -- keys */

const KEYS = [["/", "filter or search"], ["j k", "next, previous row"], ["Enter", "open the row"], ["x", "choose the row to compare"],
  ["1 to 9", "parts of a run"], ["u", "all runs"], ["0", "all of the x axis"], ["← →", "along a plot or a heat map; with Shift faster"],
  ["+ -", "zoom a plot there"], ["Enter", "lines of ranks in a plot"], ["?", "this"]];

function help() {
  const dialog = h("dialog", { "aria-label": "keys", onclick: () => dialog.close(), onclose: () => dialog.remove() },
    h("h2", {}, "Keys"), h("table", {}, KEYS.map(([key, what]) => h("tr", {}, h("td", {}, h("kbd", {}, key)), h("td", {}, what)))),
    h("p", { class: "dim" }, "Plots: drag zooms, a double click shows all, a click shows lines of ranks. ",
      h("a", { href: "licenses.txt", target: "_blank", rel: "noopener" }, "Licences")), h("button", { autofocus: true }, "close"));
  document.body.append(dialog);
  dialog.showModal();
}

const focusedRow = () => document.activeElement.closest("tr.link");

function step(by) {
  const rows = [...main.querySelectorAll("tr.link")], at = rows.indexOf(focusedRow() ?? main.querySelector("tr.at"));
  rows[Math.max(0, Math.min(rows.length - 1, at + by))]?.querySelector("a, button").focus();
}

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog")) return;
  if (event.target.matches("select, input:not([type=checkbox])")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const now = state(), row = focusedRow();
  if (event.key === "/") (document.querySelector("input.filter") ?? document.querySelector("input[type=search]"))?.focus();
  else if (event.key === "j" || (event.key === "ArrowDown" && row)) step(1);
  else if (event.key === "k" || (event.key === "ArrowUp" && row)) step(-1);
  else if (event.key === "x" && row) row.querySelector("input[type=checkbox]")?.click();
  else if (event.key === "u") set({ ...Object.fromEntries(Object.keys(now).map((name) => [name, ""])) }, false);
  else if (event.key === "0") set({ from: "", to: "" });
  else if (event.key === "?") help();
  else if (/^[1-9]$/.test(event.key) && now.run) set({ tab: Object.keys(PARTS)[event.key - 1] }, false);
  else return;
  event.preventDefault();
});

takeToken();
addEventListener("hashchange", () => takeToken() && location.reload()); // the address of another dashboard that is here now
onState(show);
add(document.body, []);
show();

// The smaller parts of a run: time, attempts, checkpoints, placement, stacks.

import { api, arrows, bytes, clock, download, fill, h, label, number, post, seconds, stamp, stop } from "./base.js";
import { link } from "./state.js";

export const table = (heads, rows, cls = "") => h("table", { class: cls }, h("thead", {}, h("tr", {}, heads.map((head) => h("th", { class: head.startsWith("#") ? "num" : "" }, label(head.replace("#", ""), 24, ""))))), h("tbody", {}, rows));
export const num = (...children) => h("td", { class: "num" }, ...children);
export const td = (...children) => h("td", {}, ...children);

function bar(from, size, whole) {
  const inner = h("div"), outer = h("div", { class: "gantt" }, inner);
  inner.style.left = `${whole > 0 ? (from / whole) * 100 : 0}%`;
  inner.style.width = `${whole > 0 ? (size / whole) * 100 : 0}%`;
  return outer;
}

/* Asks again as something changes, at most once a second and not before the answer; what is open and scrolled stays. What the
 * server could not answer is asked for again: the change may have been the last. */
export async function live({ news, onEnd }, events, draw) {
  let over = false, due = 0, busy = true, again = false;
  const rest = () => {
    busy = again && !over;
    if (busy) due = setTimeout(redraw, 1000);
  };
  const redraw = () => {
    again = false;
    draw().catch((error) => (again ||= error.status >= 500 && !document.hidden)).then(rest);
  };
  onEnd(() => ((over = true), clearTimeout(due)));
  news((event) => {
    if (!events.includes(event)) return;
    again = true;
    if (!busy) rest();
  });
  try {
    await draw();
  } finally {
    rest();
  }
}

/* -- time */

const SHARES = ["training", "start", "lost work", "waiting"];

export function time(context) {
  const { run, main, controls } = context;
  const name = run.name.replace(/[^\w.-]/g, "_") + ".trace.json";
  return live(context, ["run"], async () => {
    const [reply, { profiles }] = await Promise.all([api(`runs/${run.id}/timeline`), api(`runs/${run.id}/profiles`)]);
    const trace = `runs/${run.id}/trace.json` + (profiles.length ? "?with_profile=1" : "");
    fill(controls, download("trace", "for Perfetto, or chrome://tracing", trace, name));
    const whole = reply.shares.reduce((sum, share) => sum + share.seconds, 0) || 1;
    const shares = h("div", { class: "shares" }, reply.shares.map((share) => {
      const part = h("div", { class: "s" + SHARES.indexOf(share.share), title: `${share.share} ${seconds(share.seconds)}` });
      part.style.width = (share.seconds / whole) * 100 + "%";
      part.hidden = share.seconds <= 0;
      return part;
    }));
    let at = 0;
    const start = reply.start_up.reduce((sum, phase) => sum + phase.seconds, 0);
    fill(main, h("h2", {}, `The whole run, ${seconds(reply.seconds)}`), shares,
      h("div", { class: "legend" }, reply.shares.map((share) => h("span", {}, h("i", { class: "s" + SHARES.indexOf(share.share) }), share.share, " ", h("b", {}, ((share.seconds / whole) * 100).toFixed(1) + " %"), " ", h("span", { class: "dim" }, seconds(share.seconds))))),
      reply.start_up.length > 0 && [h("h2", {}, `Where the start ${run.attempts > 1 ? `of attempt ${run.attempts} ` : ""}went, ${seconds(start)}`),
        table(["part", "#took", "", "slowest"], reply.start_up.map((phase) => {
          const row = h("tr", {}, td(phase.phase), num(seconds(phase.seconds)), td(bar(at, phase.seconds, start)),
            td(phase.slowest_rank !== undefined && phase.slowest_rank !== null ? "rank " + phase.slowest_rank : phase.slowest_node ? ["node ", label(phase.slowest_node, 30, "")] : h("span", { class: "dim" }, "-")));
          at += phase.seconds;
          return row;
        }), "flow")],
      Object.values(reply.quantiles || {}).flat().some((value) => value !== null) && [h("h2", {}, "Over the ranks"), table(["part", "#least", "#lower quarter", "#median", "#upper quarter", "#greatest"], Object.entries(reply.quantiles).filter(([, q]) => q.some((value) => value !== null)).map(([name, q]) => h("tr", {}, td(name), q.map((value) => num(seconds(value))))), "fit")],
      reply.slowest?.length > 0 && [h("h2", {}, "The slowest to start"), table(["#rank", "#spawn", "#interpreter or loader", "#rendezvous", "#in all"], reply.slowest.map((one) => h("tr", {}, num(one.rank), num(seconds(one.spawn)), num(seconds(one.loader)), num(seconds(one.rendezvous)), num(seconds(one.seconds)))), "fit")],
      profiles.length > 0 && [h("h2", {}, "Profiles, which the trace has beside all else"), table(["#rank", "#size", ""], profiles.map((one) => h("tr", {}, num(one.rank), num(bytes(one.size)),
        td(download("download", null, `runs/${run.id}/profile/rank-${one.rank}`, one.name)))), "fit")]);
  });
}

/* -- attempts */

export function attempts(context) {
  const { run, main } = context;
  return live(context, ["run"], async () => {
    const now = await api("runs/" + run.id), history = now.history || [];
    const first = history[0]?.began ?? now.began, whole = now.seconds;
    if (!history.length) return fill(main, h("div", { class: "note" }, "No attempt has begun yet."));
    fill(main, table(["#attempt", "state", "#workers", "began", "#took", "", "why it ended", "from", "node"], history.map((one) => {
      const took = one.seconds;
      return h("tr", {}, num(one.attempt), td(h("span", { class: "state " + (one.outcome || "running") }, one.outcome || "running")), num(one.num_workers ?? one.workers), h("td", { class: "when" }, clock(one.began)), num(seconds(took)), td(bar(one.began - first, took, whole)),
        h("td", { class: "why" }, h("div", {}, one.cause ? label(one.cause, 140) : h("span", { class: "dim" }, "-"), one.cause && one.rank >= 0 && h("a", { href: link({ run: run.id, tab: "logs", ranks: one.rank }) }, "log"))), td(label(one.checkpoint?.split("/").pop() || "-", 30)), td(label(one.node || "-", 24)));
    })), h("h2", {}, "Events"), await events(run));
  });
}

async function events(run) {
  const reply = await api(`runs/${run.id}/events`, { limit: 1000 });
  const known = new Set(["sequence", "time", "kind", "attempt", "rank", "node"]);
  const rest = (event) => Object.entries({ ...event, ...event.data, data: null }).filter(([key, value]) => !known.has(key) && value !== null && value !== "").map(([key, value]) => `${key} ${typeof value === "object" ? JSON.stringify(value) : value}`).join(" · ");
  return table(["#", "time", "what", "#attempt", "#rank", "#node", ""], reply.events.slice(-300).reverse().map((event) => h("tr", {}, num(event.sequence), td(h("span", { title: stamp(event.time) }, stamp(event.time).slice(11))), td(event.kind), num(event.attempt || ""), num(event.rank >= 0 ? event.rank : ""), num(event.node >= 0 ? event.node : ""), td(h("span", { class: "dim" }, label(rest(event), 110))))));
}

/* -- checkpoints */

export function checkpoints(context) {
  const { run, main } = context;
  return live(context, ["run"], async () => {
    const list = await api(`runs/${run.id}/checkpoints`);
    if (!list.length) return fill(main, h("div", { class: "note" }, "No checkpoint was committed yet."));
    const names = [...new Set(list.flatMap((one) => Object.keys(one.metrics || {})))].filter((name) => !name.startsWith("$")).slice(0, 6);
    fill(main, table(["checkpoint", "#number", "#attempt", "committed", "#place", "#score", "#size", ...names.map((name) => "#" + name)], list.map((one) => h("tr", {},
      td(label(one.name, 50), one.rank === 1 ? h("span", { class: "chip f2" }, "best") : ""), num(number(one.number)), num(one.attempt), h("td", { class: "when", title: stamp(one.time) }, clock(one.time)),
      num(one.rank ?? "-"), num(number(one.score)), num(bytes(one.bytes)), names.map((name) => num(typeof one.metrics?.[name] === "object" ? "…" : number(one.metrics?.[name])))))));
  });
}

/* -- placement */

function seat(run, one, slow) {
  return h("a", { class: "seat " + (one.state || "") + (one.rank === slow ? " slow" : ""), href: link({ run: run.id, tab: "logs", ranks: one.rank }), title: `rank ${one.rank}: ${one.state || ""}${one.devices ? ", " + one.devices : ""}` }, one.rank, one.state === "failed" || one.rank === slow ? "!" : "");
}

export function placement(context) {
  const { run, main } = context;
  return live(context, ["run"], async () => {
    const reply = await api(`runs/${run.id}/placement`);
    const slow = run.slowest?.rank, of = new Map(reply.nodes.flatMap((node) => node.ranks.map((one) => [one.rank, one])));
    fill(main, (reply.grids || []).map((grid) => {
      const box = h("div", { class: "chips" }, grid.ranks.flat().map((rank) => (of.has(rank) ? seat(run, of.get(rank), slow) : h("span", { class: "seat", title: "free" }))));
      box.style.gridTemplateColumns = `repeat(${grid.columns}, 34px)`;
      return [h("h2", {}, "TPU slice ", label(grid.name, 40, ""), " ", label(`${grid.type} ${grid.topology}`, 40, "dim")), stop(arrows(box))];
    }), h("h2", {}, "Nodes"), reply.nodes.map((node) => h("div", { class: "node" }, h("span", {}, h("b", {}, label(node.name ?? "node " + node.node, 20)), " ", h("span", { class: "dim" }, number(node.ranks.length))),
      stop(arrows(h("div", { class: "seats" }, node.ranks.map((one) => seat(run, one, slow))))))),
    h("div", { class: "legend" }, h("span", {}, h("span", { class: "seat ready" }, "0"), " runs"), h("span", {}, h("span", { class: "seat failed" }, "0!"), " failed"), slow !== undefined && h("span", {}, h("span", { class: "seat slow" }, "0!"), " notably slow")));
  });
}

/* -- stacks */

const count = (n) => (n === 1 ? "1 rank" : `${number(n)} ranks`);

export function stacks(context) {
  const { run, main, controls } = context;
  const stop = h("button", { onclick: async () => {
    if (confirm(`End ${run.name} as Ctrl-C does?`)) await post(`runs/${run.id}/stop`, { confirm: run.name }).catch(context.fail);
  } }, "stop the run");
  const offer = () => (stop.hidden = run.state !== "running");
  const draw = async () => {
    const reply = await api(`runs/${run.id}/stacks`);
    offer();
    if (reply.actions)
      fill(controls, h("button", { onclick: async () => {
        try {
          await post(`runs/${run.id}/stacks`, { confirm: run.name });
          await draw();
        } catch (error) {
          context.fail(error);
        }
      } }, "take stacks now"), stop);
    if (!reply.groups.length) return fill(main, h("div", { class: "note" }, "No stacks were saved. ", h("code", {}, "trainyard stacks " + (/^[\w.-]+$/.test(run.name) ? run.name : "NAME")), " takes them; a rank that hangs is saved by itself."));
    fill(main, reply.groups.map((group) => h("div", { class: "groupbox" }, h("div", {}, `${count(group.n)} (${group.ranks.length > 60 ? group.ranks.slice(0, 59) + "…" : group.ranks})`, h("span", { class: "dim" }, `  ${clock(group.at)}  `), label(group.frames.split("\n").find((line) => line.trim()) || "no frames", 80, "dim")),
      h("pre", {}, group.frames || "(nothing could be read)"))));
  };
  context.news((event) => event === "facts" && offer());
  return live(context, ["logs"], draw);
}

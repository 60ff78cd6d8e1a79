// What the workers wrote: ranks beside each other, the end that is followed, and a search over all.

import { api, arrows, bytes, download, fill, h, number, plain, stop } from "./base.js";
import { set, state } from "./state.js";

const FIRST = 64 << 10, MOST = 2 << 20, SIDE = 4, ASK_MS = 2000;

/* Text with SGR colours as spans; other escapes are dropped. Of a line with carriage returns what is behind the last
 * stands, as on a terminal. */
export function coloured(text) {
  const out = [];
  let classes = [];
  const lines = text.replace(/\r\n/g, "\n").split("\n").map((line) => {
    const at = line.replace(/\r+$/, "").lastIndexOf("\r");
    return at < 0 ? line.replace(/\r+$/, "") : line.replace(/\r+$/, "").slice(at + 1);
  });
  const parts = lines.join("\n").split(/(\u001b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\^_]))/);
  for (const part of parts) {
    const sgr = /^\u001b\[([0-9;]*)m$/.exec(part);
    if (sgr) {
      for (const code of sgr[1].split(";").map(Number)) {
        if (code === 0) classes = [];
        else if (code === 1) classes = [...classes.filter((c) => c !== "b"), "b"];
        else if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97)) classes = [...classes.filter((c) => c[0] !== "f"), "f" + (code % 10)];
        else if (code === 39) classes = classes.filter((c) => c[0] !== "f");
        else if (code === 22) classes = classes.filter((c) => c !== "b");
      }
    } else if (part && !part.startsWith("\u001b")) {
      const clean = part.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g, "");
      out.push(classes.length ? h("span", { class: classes.join(" ") }, clean) : clean);
    }
  }
  return out;
}

/* The same without colours. */
const bare = (text) => coloured(text).map((part) => part.textContent ?? part).join("");

class Pane {
  constructor(run, rank, close) {
    Object.assign(this, { run, rank, from: 0, next: null, size: 0, text: "", follow: true, reading: Promise.resolve(), due: false });
    this.body = h("pre", { class: "log", tabIndex: 0, role: "region", "aria-label": "log of rank " + rank });
    this.told = h("span", { class: "dim" });
    this.tail = h("input", { type: "checkbox", checked: true, onchange: () => ((this.follow = this.tail.checked), this.follow && this.end()) });
    this.earlier = h("button", { class: "bare", onclick: () => this.before() }, "earlier");
    this.closer = h("button", { class: "bare", title: "close", onclick: close }, "✕");
    this.element = h("section", { class: "pane" }, h("div", { class: "head" }, h("b", {}, "rank " + rank), this.told, h("span", { class: "grow" }), this.earlier,
      h("label", {}, this.tail, " follow"), download("download", "the whole log", `runs/${run.id}/logs/rank-${rank}/whole`, `rank-${rank}.log`),
      this.closer), this.body);
    this.body.addEventListener("scroll", () => {
      const low = this.body.scrollHeight - this.body.scrollTop - this.body.clientHeight < 30;
      if (!low && this.follow && !this.moving) this.tail.checked = this.follow = false;
      this.moving = false;
    });
  }

  draw() {
    fill(this.body, coloured(this.text), !this.text && h("span", { class: "dim" }, "(nothing was written)"));
    fill(this.told, bytes(this.size), this.from > 0 ? `, from byte ${number(this.from)}` : "");
    this.earlier.hidden = this.from === 0;
    if (this.follow) this.end();
  }

  end() {
    this.moving = true;
    this.body.scrollTop = this.body.scrollHeight;
  }

  async read(from, size = FIRST) {
    return api(`runs/${this.run.id}/logs/rank-${this.rank}`, { from, bytes: size });
  }

  /* One reading at a time: each goes on from where the one before came to. */
  alone(work) {
    return (this.reading = this.reading.then(work));
  }

  open(offset) {
    return this.alone(() => this.next === null && this.begin(offset));
  }

  async begin(offset) {
    try {
      const reply = await this.read(offset === undefined ? -FIRST : Math.max(0, offset - 4000));
      this.text = reply.text;
      this.from = reply.from;
      this.next = reply.next;
      this.size = reply.size;
      if (this.from > 0) { // begins with a whole line
        const cut = this.text.indexOf("\n") + 1;
        this.from += new TextEncoder().encode(this.text.slice(0, cut)).length;
        this.text = this.text.slice(cut);
      }
      if (offset !== undefined) this.tail.checked = this.follow = false;
      this.draw();
    } catch (error) {
      fill(this.body, h("span", { class: "error" }, error.message));
    }
  }

  more() {
    if (this.due) return;
    this.due = true;
    this.alone(async () => {
      this.due = false;
      try {
        await (this.next === null ? this.begin() : this.goOn());
      } catch (error) { // the stream tells of a run that is gone
        if (error.status >= 500) setTimeout(() => this.element.isConnected && this.more(), ASK_MS);
      }
    });
  }

  async goOn() {
    for (let reply; (reply = await this.read(this.next)); ) {
      if (reply.size < this.next) return this.begin(); // it was cut off, or is another
      this.text += reply.text;
      this.next = reply.next;
      this.size = reply.size;
      if (this.text.length > MOST) {
        this.text = this.text.slice(-MOST / 2);
        this.from = this.next - new TextEncoder().encode(this.text).length;
      }
      if (!reply.text || reply.next >= reply.size) break;
    }
    this.draw();
  }

  before() {
    return this.alone(() => this.goBack().catch((error) => fill(this.told, h("span", { class: "error" }, error.message))));
  }

  async goBack() {
    const size = Math.min(this.from, FIRST), reply = await this.read(this.from - size, size);
    const height = this.body.scrollHeight;
    this.tail.checked = this.follow = false;
    this.text = reply.text + this.text;
    this.from = reply.from;
    this.draw();
    this.body.scrollTop += this.body.scrollHeight - height;
  }

  /* The line there is in the middle, and marked: its parts of several colours together. */
  show(line, offset) {
    const wanted = bare(line), text = this.body.textContent, before = new TextEncoder().encode(this.text).slice(0, offset - this.from);
    const there = text.indexOf(wanted, bare(new TextDecoder().decode(before)).length), at = there < 0 ? text.indexOf(wanted) : there;
    if (!wanted || at < 0) return;
    const range = document.createRange(), walker = document.createTreeWalker(this.body, NodeFilter.SHOW_TEXT), end = at + wanted.length;
    for (let node, passed = 0; passed < end && (node = walker.nextNode()); passed += node.length) {
      if (at >= passed && at < passed + node.length) range.setStart(node, at - passed);
      if (end <= passed + node.length) range.setEnd(node, end - passed);
    }
    const mark = h("mark", {}, range.extractContents());
    range.insertNode(mark);
    mark.scrollIntoView({ block: "center" });
  }
}

function marked(line, text) {
  const shown = bare(line), at = shown.toLowerCase().indexOf(text.toLowerCase());
  return at < 0 ? plain(shown) : [plain(shown.slice(0, at)), h("mark", {}, shown.slice(at, at + text.length)), plain(shown.slice(at + text.length))];
}

export async function logs({ run, main, controls, news, onEnd, fail }) {
  let list = [], panes = [];
  const search = h("input", { class: "filter", type: "search", placeholder: "search all ranks", value: state().q || "" });
  const side = arrows(h("div", { class: "ranklist", role: "toolbar", "aria-label": "ranks" })), area = h("div", { class: "beside" }), hits = h("div");
  const box = h("div", { class: "panes" });
  const buttons = new Map(), sizes = new Map();

  const size = (one) => (one.size === null ? "refused" : bytes(one.size));
  const mark = () => {
    for (const [rank, button] of buttons) button.ariaPressed = panes.some((pane) => pane.rank === rank);
    stop(side, side.querySelector("[aria-pressed=true]") ?? side.firstElementChild);
  };
  const drawSide = (counts = new Map()) => (fill(side, list.map((one) => {
    const count = counts.get(one.rank), told = h("span", { class: count ? "hits" : "dim" }, count ? number(count) : size(one));
    const button = h("button", { title: one.error || "with Shift: beside the others",
      onclick: (event) => choose(event.shiftKey ? [...panes.map((pane) => pane.rank), one.rank] : [one.rank]) },
      h("span", {}, "rank " + one.rank), told);
    buttons.set(one.rank, button);
    sizes.set(one.rank, told);
    return button;
  })), mark());
  const choose = (ranks, offset, line) => {
    const shown = [...new Set(ranks)].slice(-SIDE);
    set({ ranks: shown.join(",") });
    panes = shown.map((rank) => panes.find((pane) => pane.rank === rank && offset === undefined) || new Pane(run, rank, () => {
      choose(panes.map((pane) => pane.rank).filter((one) => one !== rank));
      buttons.get(rank)?.focus();
    }));
    fill(box, panes.map((pane) => pane.element));
    for (const pane of panes) pane.closer.hidden = panes.length < 2;
    mark();
    for (const pane of panes) if (pane.next === null) pane.open(offset).then(() => line !== undefined && pane.show(line, offset));
  };

  let asked = 0;
  async function find() {
    const text = search.value, own = ++asked;
    set({ q: text });
    if (!text) return void (fill(hits), drawSide());
    const found = [], counts = new Map(), told = h("div", { class: "note small", role: "status" }), rows = arrows(h("div", { class: "groupbox hits", role: "toolbar", "aria-label": "hits" }));
    fill(hits, told, rows);
    let cursor = null;
    do {
      const reply = await api(`runs/${run.id}/logs/search`, { q: text, cursor }).catch((error) => own === asked && fail(error, hits));
      if (own !== asked || !reply) return;
      cursor = reply.cursor;
      for (const hit of reply.hits) if (found.push(hit) <= 500) rows.append(h("button", { class: "hit", tabIndex: found.length > 1 ? -1 : 0, onclick: () => choose([hit.rank], hit.offset, hit.line) }, h("span", { class: "dim" }, "rank " + hit.rank), h("span", { class: "cut" }, marked(hit.line, text))));
      for (const { rank, hits: n } of reply.counts) counts.set(rank, (counts.get(rank) || 0) + n);
      fill(told, `${number(found.length)} ${found.length === 1 ? "hit" : "hits"} in ${number(counts.size)} ${counts.size === 1 ? "rank" : "ranks"}`, cursor ? ", searching" : "", found.length > 500 ? "; the first 500 are shown" : "");
      drawSide(counts);
    } while (cursor && found.length < 5000);
    if (cursor) fill(told, `the first ${number(found.length)} hits`);
  }
  let due = 0;
  search.addEventListener("input", () => (clearTimeout(due), (due = setTimeout(find, 200))));
  const begin = () => {
    fill(controls, search);
    fill(main, h("div", { class: "logs" }, side, fill(area, hits, box)));
    drawSide();
    choose((state().ranks || String(run.cause_rank ?? list[0].rank)).split(",").map(Number));
    if (search.value) find();
  };
  const take = (now) => {
    const first = !list.length, more = now.length !== list.length;
    list = now;
    if (!list.length) return;
    if (first) return begin();
    if (search.value) return; // hits stand beside the ranks
    if (more) drawSide();
    else for (const one of list) sizes.get(one.rank).textContent = size(one);
  };
  const ask = async () => take((await api(`runs/${run.id}/logs`)).ranks);
  let again = 0, ready = false;
  onEnd(() => (clearTimeout(again), clearTimeout(due)));
  news((event, { rank, size: now }) => {
    if (event !== "logs") return;
    for (const pane of panes) if (rank === undefined || rank === pane.rank) pane.more();
    const known = list.find((one) => one.rank === rank);
    if (rank === undefined || !ready) again ||= setTimeout(() => ((again = 0), ask().catch(() => {})), ASK_MS); // more were written than are told one by one
    else if (!known) take([...list, { rank, size: now }].sort((a, b) => a.rank - b.rank));
    else if ((known.size = now), !search.value) sizes.get(rank).textContent = size(known);
  });
  fill(main, h("div", { class: "note" }, "No worker has written anything yet."));
  await ask();
  ready = true;
}

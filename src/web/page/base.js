// Elements, requests, numbers as text: what every part of the page uses. Text of runs becomes text nodes alone.

export function h(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "class") element.className = value;
    else if (key in element && key !== "list") element[key] = value;
    else element.setAttribute(key, value);
  }
  add(element, children);
  return element;
}

export function add(element, children) {
  for (const child of children.flat(Infinity))
    if (child !== undefined && child !== null && child !== false) element.append(child);
}

/* What was focused stays so, or the one that took its place. */
export function fill(element, ...children) {
  const was = element.contains(document.activeElement) && document.activeElement;
  element.replaceChildren();
  add(element, children);
  const called = (one) => one.href ?? one.ariaLabel ?? one.textContent;
  if (was && was !== element) (was.isConnected ? was : [...element.querySelectorAll(was.tagName)].find((one) => called(one) === called(was)))?.focus({ preventScroll: true });
  return element;
}

export function svg(name, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
  add(element, children);
  return element;
}

/* A list of many is one stop of Tab, the one that was last focused or this one; arrows go through it. */
export function stop(list, at = list.firstElementChild) {
  for (const one of list.children) one.tabIndex = one === at ? 0 : -1;
  return list;
}

export function arrows(list) {
  list.addEventListener("focusin", (event) => stop(list, event.target));
  list.addEventListener("keydown", (event) => {
    const at = event.target, one = { ArrowDown: "next", ArrowRight: "next", ArrowUp: "previous", ArrowLeft: "previous" }[event.key];
    const to = one ? at[one + "ElementSibling"] : { Home: list.firstElementChild, End: list.lastElementChild }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    to?.focus();
  });
  return list;
}

/* -- requests */

const TOKEN = "trainyard-token";

/* Whether the address had one. */
export function takeToken() {
  const parts = new URLSearchParams(location.hash.slice(1));
  if (!parts.has("token")) return false;
  sessionStorage.setItem(TOKEN, parts.get("token"));
  parts.delete("token");
  history.replaceState(null, "", "#" + parts);
  return true;
}

export function setToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

export class Refused extends Error {}

function get(path, signal, headers = {}) {
  return fetch(path, { headers: { Authorization: "Bearer " + (sessionStorage.getItem(TOKEN) || ""), ...headers }, signal, cache: "no-store" });
}

async function check(reply) {
  if (reply.ok) return reply;
  let message = reply.status + " " + reply.statusText;
  try {
    message = (await reply.json()).error;
  } catch {
    // not ours: a proxy's
  }
  throw Object.assign(new (reply.status === 401 ? Refused : Error)(message), { status: reply.status });
}

export function query(parameters) {
  const parts = new URLSearchParams();
  for (const [key, value] of Object.entries(parameters))
    for (const one of [value].flat()) if (one !== undefined && one !== null && one !== "") parts.append(key, one);
  const text = parts.toString();
  return text && "?" + text;
}

/* What is shown now. As it ends, so do its requests, with an AbortError: no answer to it comes into what is shown next. */
let view = new AbortController();

export function endView() {
  view.abort();
  view = new AbortController();
}

export async function api(path, parameters = {}) {
  return (await check(await get("api/" + path + query(parameters), view.signal))).json();
}

/* Is sent in any case; only its answer is the view's. */
export async function post(path, body) {
  const { signal } = view, headers = { Authorization: "Bearer " + (sessionStorage.getItem(TOKEN) || ""), "Content-Type": "application/json" };
  try {
    return await (await check(await fetch("api/" + path, { method: "POST", headers, body: JSON.stringify(body) }))).json();
  } finally {
    signal.throwIfAborted();
  }
}

/* Answers of one kind, taken in the order in which they were asked for: behind a later one's an answer ends with an AbortError. */
export function inOrder() {
  let asked = 0, came = 0;
  return async (answer) => {
    const own = ++asked;
    try {
      return await answer;
    } finally {
      if (own < came) throw new DOMException("a later one has come", "AbortError");
      came = own;
    }
  };
}

/* A button for what the browser saves, asked for with the token; why it could not is told beside it until the next time. */
export function download(name, title, path, file) {
  const told = h("span", { class: "error" });
  const save = async () => {
    told.remove();
    try {
      saveBlob(await (await check(await get("api/" + path))).blob(), file);
    } catch (error) {
      button.after(fill(told, error.message));
    }
  };
  const button = h("button", { class: "bare", title, onclick: save }, name);
  return button;
}

export function saveBlob(blob, name) {
  const link = h("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/* Calls `work` while this page has one of a few slots that all pages of the browser share, else `without` every 3 s: a browser
 * opens 6 connections to a host, and each stream holds one. */
const SLOTS = 4;
async function inSlot(work, without) {
  if (!navigator.locks) return work();
  for (let slot = 0; slot < SLOTS; slot++) {
    const had = await navigator.locks.request("trainyard-stream-" + slot, { ifAvailable: true }, async (lock) => lock && (await work(), true));
    if (had) return;
  }
  without();
  await new Promise((resolve) => setTimeout(resolve, 1000));
}

/* The events of a run, as long as the page is seen: a hidden page holds no connection. `refused`: is told where the token is no
 * longer the server's. */
export function watch(run, tell, refused) {
  let abort = null, over = false;
  const unheard = () => over || document.hidden || ["run", "reports", "usage", "logs"].forEach((event) => tell(event, {}));
  async function listen() {
    abort = new AbortController();
    await inSlot(hear, unheard);
    abort = null;
    if (!over && !document.hidden) setTimeout(() => !over && !abort && !document.hidden && listen(), 2000);
  }
  async function hear() {
    if (abort.signal.aborted) return;
    try {
      const reader = (await check(await get("api/stream" + query({ run }), abort.signal))).body.getReader();
      let text = "";
      for (const decoder = new TextDecoder(); ; ) {
        const { done, value } = await reader.read();
        if (done) break;
        text += decoder.decode(value, { stream: true });
        const events = text.split("\n\n");
        text = events.pop();
        for (const event of events) {
          const match = /^event: (\w+)\ndata: (.*)$/.exec(event);
          if (match) tell(match[1], JSON.parse(match[2]));
        }
      }
    } catch (error) {
      if (error instanceof Refused) (over = true), refused(error);
      if (error.status === 503) unheard(); // more watch than may
    }
  }
  const seen = () => {
    if (document.hidden) abort?.abort();
    else if (!abort && !over) listen();
  };
  document.addEventListener("visibilitychange", seen);
  seen();
  return () => {
    over = true;
    document.removeEventListener("visibilitychange", seen);
    abort?.abort();
  };
}

/* -- numbers */

export function number(value, digits = 4) {
  if (value === null || value === undefined) return "-";
  if (typeof value === "string") return value;
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e9) return value.toLocaleString("en");
  if (size !== 0 && (size < 1e-4 || size >= 1e9)) return value.toExponential(digits - 1).replace("e+", "e");
  const short = size >= 10000 ? Math.round(value) : +value.toPrecision(digits);
  return size >= 1000 ? short.toLocaleString("en", { maximumFractionDigits: digits }) : String(short);
}

/* What a reply is not exact by. */
export const inexact = (reply) => (reply.exact ? "" : reply.scanned < 1 ? `sampled ${number(reply.scanned * 100, 2)} %` : "the newest may still change");

export function seconds(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "-";
  if (value < 0) return "-" + seconds(-value);
  if (value < 1e-3) return +(value * 1e6).toPrecision(3) + " µs";
  if (value < 1) return +(value * 1e3).toPrecision(3) + " ms";
  if (value < 60) return +value.toPrecision(3) + " s";
  const whole = Math.round(value);
  if (whole < 3600) return Math.floor(whole / 60) + " m " + (whole % 60) + " s";
  if (whole < 172800) return Math.floor(whole / 3600) + " h " + Math.floor((whole % 3600) / 60) + " m";
  return Math.floor(whole / 86400) + " d " + Math.floor((whole % 86400) / 3600) + " h";
}

export function bytes(value) {
  if (value === null || value === undefined) return "-";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let at = 0;
  for (; value >= 1024 && at < units.length - 1; at++) value /= 1024;
  return (at ? +value.toPrecision(3) : value) + " " + units[at];
}

export function clock(wall) {
  const date = new Date(wall * 1000), now = new Date();
  const time = date.toTimeString().slice(0, 5);
  if (date.toDateString() === now.toDateString()) return time;
  const day = date.toLocaleDateString("en", { day: "numeric", month: "short" });
  return date.getFullYear() === now.getFullYear() ? day + " " + time : day + " " + date.getFullYear();
}

/* As the clock of this browser has it, as all times on the page are. */
export function stamp(wall) {
  const date = new Date(wall * 1000);
  return new Date(date - date.getTimezoneOffset() * 60000).toISOString().replace("T", " ").slice(0, 23);
}

/* One line, control characters and marks of direction told; cut, with the whole in the tooltip. */
export function plain(text) {
  return String(text).replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (c) =>
    c === "\t" ? " " : c === "\n" ? " ⏎ " : "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
}

export function label(text, most = 80, cls = "cut") {
  const line = plain(text);
  return h("span", { class: cls, title: line.slice(0, 4000), dir: "ltr" }, line.length > most ? line.slice(0, most - 1) + "…" : line);
}

export const COLOURS = ["#2563c9", "#d9730d", "#2e8b57", "#b8379a", "#8a6d00", "#0f8b8d", "#c62f2f", "#6f52c9", "#5c7d12", "#a0522d",
  "#457b9d", "#e0569b", "#3a7d44", "#947100", "#7a5195", "#555f6b"];

/* Of the style sheet; kept, as asking for one lays out what was changed before. */
const colours = new Map();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => colours.clear());
export function colour(name) {
  if (!colours.has(name)) colours.set(name, getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim());
  return colours.get(name);
}

/* At most so many at once, the newest asked for last. */
export function limited(most) {
  let n = 0;
  const waiting = [];
  const next = () => {
    if (n >= most || !waiting.length) return;
    n++;
    const { work, resolve, reject } = waiting.shift();
    work().then(resolve, reject).finally(() => (n--, next()));
  };
  return (work) => new Promise((resolve, reject) => (waiting.push({ work, resolve, reject }), next()));
}

const SIGHT = 200; // pixels above and below the window that are made ready

export function inSight(element) {
  const { top, bottom } = element.getBoundingClientRect();
  return bottom > -SIGHT && top < innerHeight + SIGHT;
}

const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    entry.target.inSight = entry.isIntersecting;
    if (entry.isIntersecting) entry.target.dispatchEvent(new Event("sight"));
  }
}, { rootMargin: SIGHT + "px" });

/* Calls when the element comes into sight; element.inSight tells afterwards. */
export function whenSeen(element, call) {
  element.addEventListener("sight", call);
  seen.observe(element);
}

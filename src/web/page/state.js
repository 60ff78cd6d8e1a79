// The view as the address has it: a link shows the same. Parts are set by name; all who show something of it hear.

const listeners = new Set();

export function state() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

/* undefined or "" takes a part away. `quiet`: no step back in the history. */
export function set(changes, quiet = true) {
  const parts = new URLSearchParams(location.hash.slice(1));
  for (const [key, value] of Object.entries(changes))
    if (value === undefined || value === null || value === "" || value === false) parts.delete(key);
    else parts.set(key, value);
  const hash = "#" + parts;
  if (hash === location.hash || (hash === "#" && !location.hash)) return;
  if (quiet) history.replaceState(null, "", hash);
  else history.pushState(null, "", hash);
  for (const listener of listeners) listener();
}

export function link(changes, keep = []) {
  const parts = new URLSearchParams(), now = state();
  for (const key of keep) if (now[key]) parts.set(key, now[key]);
  for (const [key, value] of Object.entries(changes)) parts.set(key, value);
  return "#" + parts;
}

/* `onEnd`: tells of the end of what is shown, where the listener is a part of that. */
export function onState(listener, onEnd) {
  listeners.add(listener);
  onEnd?.(() => listeners.delete(listener));
}

addEventListener("popstate", () => listeners.forEach((listener) => listener()));
addEventListener("hashchange", () => listeners.forEach((listener) => listener()));

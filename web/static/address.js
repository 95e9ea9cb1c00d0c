// The opened item of a screen is in the address, so that links, reload and the back button work.
export function opened() {
  try { return decodeURIComponent(location.hash.slice(1)) || null; } catch { return null; }
}

export function addressOf(name) {
  return `#${encodeURIComponent(name)}`;
}

export function toggle(name) {
  if (opened() !== name) location.hash = addressOf(name);
  else {
    history.pushState(null, "", location.pathname + location.search);
    window.dispatchEvent(new PopStateEvent("popstate"));
  }
}

// Calls `draw` when another item is opened or none, also by the browser's back button.
export function onOpened(draw) {
  window.addEventListener("popstate", draw);
}

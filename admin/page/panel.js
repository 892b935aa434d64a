// The panel at the side (on a phone over everything) that shows one record, or a change of many.

import { el, setHidden, $, $$ } from "./dom.js";

const node = $("#panel");
let cameFrom = null;
let onClose = null;
let keep = null;

// So narrow that the panel is over everything (page.css has the same width).
const narrow = matchMedia("(max-width: 960px)");

export const isOpen = () => !node.hidden;

export const covers = () => isOpen() && narrow.matches;

// What is behind the panel is reached neither by Tab nor by a screen reader.  The line about the connection is heard all the same.
function holdBehind() {
  for (const each of $$("body > :not(#panel, #connection, dialog)")) each.inert = covers();
}
narrow.addEventListener("change", holdBehind);

// Until it is called with null, the panel stays as it is, and `tell` is called where it would be closed or replaced.
export const keepOpen = (tell) => { keep = tell; };

export const isKept = () => keep !== null;

export function open({ title, content, closed = () => {}, name }) {
  if (keep) {
    keep();
    closed();
    return;
  }
  if (!isOpen()) cameFrom = document.activeElement;
  onClose?.();
  onClose = closed;
  const heading = el("h2", { id: "panel-title", tabindex: -1 }, title);
  node.replaceChildren(
    el("header", { class: "panel-head" }, heading,
      el("button", { type: "button", class: "icon-button", "aria-label": "Close", title: "Close (Escape)", data: { action: "close" }, on: { click: close } }, "✕")),
    el("div", { class: "panel-body" }, content));
  node.dataset.name = name;
  setHidden(node, false);
  document.body.classList.add("with-panel");
  holdBehind();
  heading.focus({ preventScroll: true });
}

export function close() {
  if (!isOpen()) return;
  if (keep) {
    keep();
    return;
  }
  const had = node.contains(document.activeElement);
  setHidden(node, true);
  node.replaceChildren();
  document.body.classList.remove("with-panel");
  holdBehind();
  const done = onClose;
  onClose = null;
  // Back to the row or button that opened it, if it is there still.
  if (had || document.activeElement === document.body) {
    if (cameFrom?.isConnected) cameFrom.focus({ preventScroll: true });
    else $('#records [tabindex="0"]')?.focus({ preventScroll: true });
  }
  cameFrom = null;
  done?.();
}

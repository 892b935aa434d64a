// Elements, built from data.  The names of records, topics and clients go into text nodes and
// attributes only, never into markup: they are hostile input.

// el("td", { class: "number", data: { field: "due" }, on: { click } }, "text", child, [children]).
// Properties of `style` are set one by one, which a content security policy allows.
export function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  assign(node, attributes);
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function svg(name, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  assign(node, attributes);
  node.append(...children.flat(Infinity));
  return node;
}

function assign(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "data") Object.assign(node.dataset, value);
    else if (name === "on") for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    else if (name === "style") for (const [property, text] of Object.entries(value)) node.style.setProperty(property, text);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
}

export const $ = (selector, root = document) => root.querySelector(selector);
export const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

// Writes only what has changed: a selection and a screen reader are left in peace.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setHidden(node, hidden) {
  if (node.hidden !== hidden) node.hidden = hidden;
}

export function setAttribute(node, name, value) {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

// Brings the children of `parent` into the order of `items`, and keeps the element of each key: the
// focus, a selection and the scroll position survive an update.
export function reconcile(parent, items, key, make, update = () => {}) {
  const old = new Map([...parent.children].map((child) => [child.reconcileKey, child]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const name = String(key(item));
    let node = old.get(name);
    if (!node) {
      node = make(item);
      node.reconcileKey = name;
    }
    old.delete(name);
    update(node, item);
    if (node === place) place = place.nextElementSibling;
    else parent.insertBefore(node, place);
  }
  for (const node of old.values()) node.remove();
}

// Characters that would hide or reorder the text around them are shown by name, and spaces at the ends by a sign.
const unseen = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/gu;
export function visible(text) {
  return String(text).replace(/^ +| +$/g, (spaces) => "␠".repeat(spaces.length)).replace(unseen, (character) => {
    const code = character.codePointAt(0);
    if (code < 0x20) return String.fromCodePoint(0x2400 + code);
    return `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}

// The same as a node or a text, where there may be none or an empty one.
export const orNone = (text) => (text === null ? el("span", { class: "none" }, "none") : text === "" ? el("span", { class: "none" }, "empty") : visible(text));

// A table whose rows are kept by key.  A column is {head, class, hint, cell(item) -> node or text}; cells are
// written again only when their text differs, or always with `live`.
export class Table {
  constructor(columns, { key, caption, row = () => ({}), after = null }) {
    this.columns = columns;
    this.key = key;
    this.row = row;
    this.after = after;
    this.body = el("tbody");
    this.table = el("table", { class: "table" },
      el("caption", { class: "unseen" }, caption),
      el("thead", {}, el("tr", {}, columns.map((column) =>
        el("th", { scope: "col", class: column.class, title: column.hint }, column.head)))),
      this.body);
    this.node = el("div", { class: "table-holder" }, this.table);
  }

  update(items) {
    reconcile(this.body, items, this.key, (item) => {
      const row = el("tr", this.row(item));
      for (const column of this.columns)
        row.append(el("td", { class: column.class, data: { label: typeof column.head === "string" ? column.head : "" } }));
      return row;
    }, (row, item) => {
      row.item = item;
      this.columns.forEach((column, place) => write(row.children[place], column.cell(item)));
      this.after?.(row, item);
    });
  }
}

function write(cell, content) {
  if (content instanceof Node) {
    if (cell.childNodes.length !== 1 || !cell.firstChild.isEqualNode(content)) cell.replaceChildren(content);
  } else {
    setText(cell, content === null || content === undefined ? "–" : String(content));
  }
}

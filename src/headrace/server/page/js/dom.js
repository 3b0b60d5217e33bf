// A view is a function from values to a tree of `h(...)`; `render` makes the document like the tree
// and touches only what differs, so that focus, selection and scroll positions stay.
// Texts become text nodes, never markup: what a job, a log line or a record says cannot become an element.

const SVG = "http://www.w3.org/2000/svg";
const PROPERTIES = new Set(["value", "checked", "disabled", "selected", "indeterminate"]);

/** An element: `props` are attributes, `on…` handlers, `class`, `key`, and
 *  `vars` (CSS properties), `host` (called once with the element, whose children are then its own)
 *  and `after` (called with the element after each rendering). */
export function h(tag, props, ...children) {
  const given = props ?? {};
  return { tag, props: given, key: given.key, children: children.flat(Infinity) };
}

export function render(parent, ...trees) {
  const focused = document.activeElement;
  const calls = [];
  patchChildren(parent, trees.flat(Infinity), calls);
  if (focused && focused !== document.activeElement && focused.isConnected && parent.contains(focused)) {
    focused.focus({ preventScroll: true }); // a row that moved takes the focus along
  }
  for (const call of calls) call();
}

const isText = (want) => want === null || want === undefined || typeof want !== "object";
const textOf = (want) => (want === null || want === undefined || want === false || want === true ? "" : String(want));

function patchChildren(parent, wanted, calls) {
  const names = new Set(wanted.map((want) => (isText(want) ? undefined : want.key)));
  const keyed = new Map();
  for (const node of [...parent.childNodes]) {
    if (node.$key === undefined) continue;
    if (names.has(node.$key)) keyed.set(node.$key, node);
    else node.remove();
  }
  let at = parent.firstChild;
  for (const want of wanted) {
    const key = isText(want) ? undefined : want.key;
    let node = key === undefined ? (at && at.$key === undefined ? at : null) : keyed.get(key);
    if (node && !fits(node, want)) node = null;
    if (!node) {
      node = created(want, parent);
      parent.insertBefore(node, at);
    } else if (node === at) {
      at = at.nextSibling;
    } else {
      parent.insertBefore(node, at);
    }
    update(node, want, calls);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function fits(node, want) {
  if (isText(want)) return node.nodeType === Node.TEXT_NODE;
  return node.nodeType === Node.ELEMENT_NODE && node.$tag === want.tag && node.$key === want.key;
}

function created(want, parent) {
  if (isText(want)) return document.createTextNode(textOf(want));
  const isSvg = want.tag === "svg" || (parent.namespaceURI === SVG && parent.tagName !== "foreignObject");
  const node = isSvg ? document.createElementNS(SVG, want.tag) : document.createElement(want.tag);
  node.$tag = want.tag;
  node.$key = want.key;
  node.$props = {};
  return node;
}

function update(node, want, calls) {
  if (isText(want)) {
    const text = textOf(want);
    if (node.data !== text) node.data = text;
    return;
  }
  const before = node.$props;
  const { props } = want;
  node.$props = props;
  for (const name of Object.keys(before)) if (!(name in props)) set(node, name, undefined, before[name]);
  for (const name of Object.keys(props)) if (name !== "value") set(node, name, props[name], before[name]);
  if (!props.host) patchChildren(node, want.children, calls);
  else if (!before.host) calls.push(() => props.host(node));
  if ("value" in props) set(node, "value", props.value, before.value); // after the options of a select
  if (props.after) calls.push(() => props.after(node));
}

function set(node, name, value, before) {
  if (name === "key" || name === "host" || name === "after") return;
  if (name.startsWith("on")) {
    // what a handler returns means nothing: `false` would keep the browser from doing its part
    if (value !== before) node[name] = value ? (event) => void value(event) : null;
  } else if (name === "vars") {
    for (const [variable, text] of Object.entries(value ?? {})) {
      if (before?.[variable] !== text) node.style.setProperty(variable, text);
    }
  } else if (PROPERTIES.has(name)) {
    const wanted = value ?? (name === "value" ? "" : false);
    if (node[name] !== wanted) node[name] = wanted;
  } else if (value !== before) {
    if (value === undefined || value === null || value === false) node.removeAttribute(name);
    else node.setAttribute(name, value === true ? "" : value);
  }
}

// The plan of a job (the JSON of `headrace explain`) as boxes and lines, in its two forms.

const LONGEST = 30;
const LOOP = "loop:";
const LINE = 17;
const PAD = 12;
const NARROWEST = 150;

export const shortened = (text, longest = LONGEST) => (text.length <= longest ? text : `${text.slice(0, longest - 1)}…`);

const ruler = document.createElement("canvas").getContext("2d");

/** How wide a text is in the letters of the graph; the first line of a box is bold. */
function measured(text, isBold) {
  ruler.font = `${isBold ? "650 12.5px" : "12px"} ${getComputedStyle(document.body).fontFamily}`;
  return ruler.measureText(text).width;
}

function box(id, kind, lines, more) {
  const texts = lines.filter(Boolean).map((line) => shortened(line));
  const width = Math.max(NARROWEST, ...texts.map((text, i) => measured(text, i === 0) + 2 * PAD + 4));
  return { id, kind, lines: texts, width, height: 2 * PAD + texts.length * LINE + 22, ...more };
}

/** The step that a label such as "split.late" comes from, and the port of it. */
function origin(label, names) {
  let name = label;
  while (!names.has(name) && name.includes(".")) name = name.slice(0, name.lastIndexOf("."));
  return names.has(name) ? { name, port: label.slice(name.length + 1) } : null;
}

/** The steps as the program has them. */
export function logical(plan) {
  const names = new Set(plan.logical.map((step) => step.name));
  const levels = levelsOf(plan);
  const nodes = plan.logical.map((step) => box(step.name, step.kind, [step.name, step.kind, step.detail], { step, level: levels.get(step.name) ?? 0 }));
  const edges = plan.logical.flatMap((step) => step.inputs.map((label) => ({ at: origin(label, names), to: step.name })))
    .filter((edge) => edge.at).map(({ at, to }) => ({ from: at.name, to, port: at.port, how: dealt(plan, at.name, to) }));
  for (const step of plan.logical) {
    const name = step.kind === "write" && step.detail.startsWith(LOOP) ? step.detail.slice(LOOP.length) : null;
    if (name !== null && names.has(name)) edges.push({ from: step.name, to: name, port: "", how: "again" });
  }
  return { nodes, edges, bands: [] };
}

/** The steps as tasks run them: levels, and in each the chains that were fused. */
export function physical(plan) {
  const ids = new Map();
  const nodes = [];
  for (const level of plan.physical) {
    for (const step of level.steps) {
      const id = `${level.level} ${step.name}`;
      for (const name of [step.name, ...step.fused]) ids.set(name, [...(ids.get(name) ?? []), id]);
      const fused = step.fused.length > 1 ? `fused: ${step.fused.join(", ")}` : step.detail;
      nodes.push(box(id, step.kind, [step.name, step.mode === "python" ? `${step.kind} · Python` : step.kind, fused], { step, level: level.level }));
    }
  }
  const outputs = plan.outputs.map((o) => box(`out ${o.name}`, "write", [o.name, o.uri, o.guarantee ?? ""], {
    step: { ...o, kind: "write", detail: o.uri, inputs: [o.input] }, level: o.level,
  }));
  const names = new Set(ids.keys());
  for (const node of outputs) { // one that reads a step of a later level is drawn beside that
    const at = origin(node.step.input, names);
    const levels = at ? ids.get(at.name).map((id) => Number(id.split(" ", 1)[0])) : [];
    node.level = Math.max(node.level, Math.min(...levels, Infinity) === Infinity ? 0 : Math.min(...levels));
  }
  const edges = [];
  for (const node of [...nodes, ...outputs]) {
    for (const label of node.step.inputs) {
      const at = origin(label, names);
      for (const from of at ? nearest(ids.get(at.name), node) : []) edges.push({ from, to: node.id, port: at.port, how: dealt(plan, at.name, node.step.name) });
    }
  }
  return { nodes: floors([...nodes, ...outputs], edges), edges, bands: plan.physical };
}

/** Where a step runs at several levels, the copy of the same level is meant, else the last before. */
function nearest(found, node) {
  const at = (id) => Number(id.split(" ", 1)[0]);
  const same = found.filter((id) => at(id) === node.level && id !== node.id);
  if (same.length) return same;
  const before = found.filter((id) => at(id) < node.level);
  return before.length ? before.slice(-1) : found.slice(0, 1);
}

/** Levels lie beside each other: each begins to the right of all columns of the one before. */
function floors(nodes, edges) {
  const depth = new Map();
  const within = (node, seen = new Set()) => {
    if (depth.has(node.id)) return depth.get(node.id);
    if (seen.has(node.id)) return 0;
    seen.add(node.id);
    const before = edges.filter((e) => e.to === node.id).map((e) => nodes.find((n) => n.id === e.from)).filter((n) => n && n.level === node.level);
    const found = Math.max(0, ...before.map((n) => within(n, seen) + 1));
    depth.set(node.id, found);
    return found;
  };
  let start = 0;
  for (const level of [...new Set(nodes.map((n) => n.level))].sort((a, b) => a - b)) {
    const those = nodes.filter((n) => n.level === level);
    for (const node of those) node.floor = start + within(node);
    start = Math.max(...those.map((n) => n.floor)) + 1;
  }
  return nodes;
}

function levelsOf(plan) {
  const levels = new Map();
  for (const level of [...plan.physical].reverse()) {
    for (const step of level.steps) for (const name of [step.name, ...step.fused]) levels.set(name, level.level);
  }
  for (const output of plan.outputs) levels.set(output.name, output.level);
  return levels;
}

/** How rows are dealt out to the tasks of the next level; nothing if they stay in their task. */
function dealt(plan, from, to) {
  const sent = plan.physical.flatMap((level) => level.sends).find((s) => s.to === to && (s.from === from || s.from.startsWith(`${from}.`)));
  if (!sent) return "";
  if (sent.dealt) return sent.dealt.split(", to ")[0];
  if (sent.every) return "to every task";
  return sent.by.length ? `by ${sent.by.join(", ")}` : sent.spread ? "spread" : "to one task";
}

// Where the boxes of a graph lie: columns by the longest way from an input, in a column in the order that
// crosses the fewest lines, and each as near as it can be to what it is joined with. Numbers only, no drawing.

const COLUMN_GAP = 104;
const PORT = 54; // between lines that arrive at one box
const ROW_GAP = 26;
const SWEEPS = 6;

/** `nodes` are {id, width, height, floor?} (`floor`: the first column it may lie in), `edges` {from, to}.
 *  Gives nodes x and y, and edges the `chain` of boxes and lanes they pass, and where they arrive; edges that close a loop are marked `back`. */
export function layOut(nodes, edges) {
  const byId = new Map(nodes.map((node) => [node.id, Object.assign(node, { before: [], column: node.floor ?? 0 })]));
  markBack(byId, edges);
  const forward = edges.filter((edge) => !edge.back);
  for (const edge of forward) byId.get(edge.to).before.push(byId.get(edge.from));
  assignColumns(nodes);
  for (const node of nodes) node.height = Math.max(node.height, node.before.length * PORT);
  const all = [...nodes, ...lanes(forward, byId)];
  const columns = [];
  for (const node of all) (columns[node.column] ??= []).push(node);
  for (let i = 0; i < columns.length; i += 1) columns[i] ??= [];
  order(columns);
  place(columns);
  for (const node of nodes) ports(node, forward);
  const width = Math.max(0, ...nodes.map((n) => n.x + n.width));
  const height = Math.max(0, ...all.map((n) => n.y + n.height));
  return { width, height, columns: columns.map((c) => ({ x: c[0]?.x ?? 0, width: Math.max(0, ...c.map((n) => n.width)) })) };
}

function markBack(byId, edges) {
  const leaving = new Map([...byId.keys()].map((id) => [id, edges.filter((e) => e.from === id)]));
  const state = new Map();
  const visit = (id) => {
    state.set(id, "open");
    for (const edge of leaving.get(id)) {
      if (state.get(edge.to) === "open") edge.back = true;
      else if (!state.has(edge.to)) visit(edge.to);
    }
    state.set(id, "done");
  };
  for (const id of byId.keys()) if (!state.has(id)) visit(id);
}

function assignColumns(nodes) {
  for (let changed = true, rounds = 0; changed && rounds <= nodes.length; rounds += 1) {
    changed = false;
    for (const node of nodes) {
      const least = Math.max(node.floor ?? 0, ...node.before.map((b) => b.column + 1));
      if (least > node.column) [node.column, changed] = [least, true];
    }
  }
}

/** An edge over several columns passes each of them in a lane of its own. */
function lanes(edges, byId) {
  const made = [];
  for (const edge of edges) {
    const [from, to] = [byId.get(edge.from), byId.get(edge.to)];
    edge.chain = [from];
    for (let column = from.column + 1; column < to.column; column += 1) {
      const lane = { isLane: true, width: 0, height: 10, column };
      made.push(lane);
      edge.chain.push(lane);
    }
    edge.chain.push(to);
    for (let i = 1; i < edge.chain.length; i += 1) {
      (edge.chain[i].left ??= []).push(edge.chain[i - 1]);
      (edge.chain[i - 1].right ??= []).push(edge.chain[i]);
    }
  }
  return made;
}

function order(columns) {
  columns.forEach((column) => column.forEach((node, i) => Object.assign(node, { rank: i })));
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const side = sweep % 2 ? "right" : "left";
    for (const column of sweep % 2 ? [...columns].reverse() : columns) {
      for (const node of column) node.wish = mean((node[side] ?? []).map((n) => n.rank)) ?? node.rank;
      column.sort((a, b) => a.wish - b.wish);
      column.forEach((node, i) => Object.assign(node, { rank: i }));
    }
  }
}

function place(columns) {
  let x = 0;
  for (const column of columns) {
    let y = 0;
    for (const node of column) {
      Object.assign(node, { x, y });
      y += node.height + ROW_GAP;
    }
    const width = Math.max(0, ...column.map((n) => n.width));
    for (const node of column) if (node.isLane) node.width = width;
    x += width + COLUMN_GAP;
  }
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const sides = sweep % 2 ? ["right"] : ["left"];
    for (const column of sweep % 2 ? [...columns].reverse() : columns) settle(column, sides);
  }
  const top = Math.min(...columns.flat().map((n) => n.y));
  for (const node of columns.flat()) node.y -= top;
}

/** Moves the boxes of a column towards what they are joined with, without passing each other. */
function settle(column, sides) {
  for (const node of column) {
    const near = sides.flatMap((side) => node[side] ?? []);
    const wish = mean(near.map((n) => n.y + n.height / 2));
    node.wish = wish === null ? node.y : wish - node.height / 2;
  }
  let low = -Infinity;
  const down = [];
  for (const node of column) {
    down.push(Math.max(low, node.wish));
    low = down.at(-1) + node.height + ROW_GAP;
  }
  let high = Infinity;
  const up = [];
  for (const node of [...column].reverse()) {
    high = Math.min(high - node.height, node.wish);
    up.unshift(high);
    high -= ROW_GAP;
  }
  let floor = -Infinity;
  column.forEach((node, i) => {
    node.y = Math.max(floor, (down[i] + up[i]) / 2);
    floor = node.y + node.height + ROW_GAP;
  });
}

/** Lines that arrive at a box do so in the order of where they come from, so none cross there. */
function ports(node, edges) {
  const arriving = edges.filter((edge) => edge.to === node.id);
  const height = (edge) => edge.chain.at(-2).y + edge.chain.at(-2).height / 2;
  arriving.sort((a, b) => height(a) - height(b));
  const step = Math.min(PORT, node.height / arriving.length);
  arriving.forEach((edge, i) => {
    edge.arrives = node.y + node.height / 2 + (i - (arriving.length - 1) / 2) * step;
  });
}

const mean = (values) => (values.length ? values.reduce((a, b) => a + b, 0) / values.length : null);

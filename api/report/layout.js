// Layered drawing (Sugiyama): rows by the longest path, order by barycentres, places by least squares. Frames
// are laid out from the inside out; an edge that enters or leaves a frame does so by a port on its border.

const gapX = 18, gapY = 26, framePad = 14, frameHead = 26, charWidth = 6.7;

/**
 * Gives every item x, y, w and h, relative to its frame, and every frame its `lines`: points to be joined.
 */
function layoutTree(tree, measure) {
  const links = new Map();  // frame -> links between its children and ports
  const linksOf = frame => links.get(frame) || links.set(frame, new Map()).get(frame);
  for (const {from, to} of tree.edges) {
    const up = pathOf(from), down = pathOf(to);
    let depth = 0;
    while (up[depth + 1] === down[depth + 1]) ++depth;
    for (let i = up.length - 2; i > depth; --i)
      connect(linksOf(up[i]), end(up[i + 1], from, 'out'), end(portOf(up[i], from, 'out')));
    connect(linksOf(up[depth]), end(up[depth + 1], from, 'out'), end(down[depth + 1], from, 'in'));
    for (let i = depth + 1; i < down.length - 1; ++i)
      connect(linksOf(down[i]), end(portOf(down[i], from, 'in')), end(down[i + 1], from, 'in'));
  }
  layoutFrame(tree.root, linksOf, measure);
}

function pathOf(item) {
  const path = [];
  for (; item; item = item.parent) path.unshift(item);
  return path;
}

function portOf(frame, source, way) {
  frame.ports = frame.ports || new Map();
  const key = `${way} ${source.key}`;
  if (!frame.ports.has(key))
    frame.ports.set(key, {kind: 'port', way, key: `${frame.key} ${key}`, w: 4, h: 0});
  return frame.ports.get(key);
}

/** One end of a link: an item and, if it is a frame, the port on its border. */
function end(item, source, way) {
  const isFrame = item.children && !item.isShut;
  return {item, port: source && isFrame ? portOf(item, source, way) : null};
}

function connect(links, from, to) {
  const name = side => side.item.key + (side.port ? side.port.key : '');
  links.set(`${name(from)}>${name(to)}`, {from, to});
}

function layoutFrame(frame, linksOf, measure) {
  for (const child of frame.children)
    if (child.children && !child.isShut)
      layoutFrame(child, linksOf, measure);
    else
      [child.w, child.h] = measure(child);
  const ports = [...(frame.ports ? frame.ports.values() : [])];
  const items = [
    ...ports.filter(port => port.way === 'in'), ...frame.children, ...ports.filter(port => port.way === 'out')
  ];
  const links = [...linksOf(frame).values()];
  const rows = rowsOf(items, links);
  const chains = spanRows(rows, links);
  orderRows(rows);
  placeRows(rows);
  const isRoot = frame.kind === 'root';
  const head = isRoot ? framePad : frameHead;
  let y = head;
  for (const row of rows) {
    const height = Math.max(0, ...row.map(item => item.h));
    for (const item of row) item.y = y + (item.kind === 'port' ? 0 : (height - item.h) / 2);
    if (height > 0) y += height + gapY;
    for (const item of row)
      if (item.kind === 'dummy') {
        item.y = y - gapY - height;
        item.h = height;
      }
  }
  frame.w =
      Math.max(frame.kind === 'root' ? 0 : measure(frame)[0], ...rows.flat().map(item => item.x + item.w)) +
      framePad;
  frame.h = y - gapY + framePad;
  for (const port of ports) port.y = port.way === 'in' ? 0 : frame.h;
  frame.lines = chains.map(chain => linePoints(chain));
}

function rowsOf(items, links) {
  const at = new Map(items.map((item, index) => [item, index]));
  items.forEach(item => {
    item.row = 0;
  });
  const into = new Map(items.map(item => [item, []]));
  for (const link of links)
    if (at.get(link.from.item) < at.get(link.to.item)) into.get(link.to.item).push(link.from.item);
  const ordered = inOrder(items, into);
  for (const item of ordered) item.row = Math.max(0, ...into.get(item).map(from => from.row + 1));
  if (items.some(item => item.kind === 'port' && item.way === 'in'))
    for (const item of ordered)  // below the ports, which are the first row
      if (item.kind !== 'port') item.row = Math.max(1, item.row, ...into.get(item).map(from => from.row + 1));
  const last = Math.max(0, ...items.filter(item => item.way !== 'out').map(item => item.row));
  for (const item of items)
    if (item.way === 'out') item.row = last + 1;
  const rows = [];
  for (const item of items) (rows[item.row] = rows[item.row] || []).push(item);
  return Array.from(rows, row => row || []);
}

/**
 * Items stand in the order of their first ops; what they read stands before them but for frames that
 * interlock.
 */
function inOrder(items, into) {
  const done = new Set(), ordered = [];
  const visit = item => {
    const stack = [item];
    while (stack.length > 0) {
      const top = stack[stack.length - 1];
      const next =
          done.has(top) ? undefined : into.get(top).find(from => !done.has(from) && !stack.includes(from));
      if (next) {
        stack.push(next);
        continue;
      }
      stack.pop();
      if (!done.has(top)) {
        done.add(top);
        ordered.push(top);
      }
    }
  };
  items.forEach(visit);
  return ordered;
}

/**
 * Edges over several rows pass through a dummy in each, so that they go around boxes. Those from one source
 * share them: a trunk with branches.
 */
function spanRows(rows, links) {
  for (const row of rows)
    for (const item of row) {
      item.above = [];
      item.below = [];
    }
  const trunks = new Map();  // by source: what its edges pass, from the top
  const sorted = [...links].sort((a, b) => a.to.item.row - b.to.item.row);
  return sorted.map(({from, to}) => {
    const source = from.port || from.item;
    const trunk = trunks.get(source) || trunks.set(source, [{item: from.item, port: from.port}]).get(source);
    const chain = [trunk[trunk.length - 1]];
    for (let row = chain[0].item.row + 1; row < to.item.row; ++row) {
      const dummy = {item: {kind: 'dummy', w: 6, h: 0, row, above: [], below: [], trunk: source}, port: null};
      rows[row].push(dummy.item);
      chain.push(dummy);
      trunk.push(dummy);
    }
    // The trunk may have come as far as this already.
    while (chain[0].item.row >= to.item.row && trunk.indexOf(chain[0]) > 0)
      chain[0] = trunk[trunk.indexOf(chain[0]) - 1];
    chain.push(to);
    if (from.item.row < to.item.row)
      for (let i = 0; i + 1 < chain.length; ++i) {
        chain[i].item.below.push(chain[i + 1]);
        chain[i + 1].item.above.push(chain[i]);
      }
    return chain;
  });
}

function orderRows(rows) {
  rows.forEach(row => row.forEach((item, index) => {
    item.order = index;
  }));
  for (let sweep = 0; sweep < 8; ++sweep) {
    const isDown = sweep % 2 === 0;
    for (const row of isDown ? rows : [...rows].reverse()) {
      const want = new Map(row.map(item => {
        const near = isDown ? item.above : item.below;
        return [
          item, near.length > 0 ? sum(near.map(side => rank(side, rows))) / near.length : rank({item}, rows)
        ];
      }));
      row.sort((a, b) => want.get(a) - want.get(b) || a.order - b.order);
      row.forEach((item, index) => {
        item.order = index;
      });
    }
  }
}

/** Where in its row, from 0 to 1, with the port's place in its frame. */
function rank({item, port}, rows) {
  const count = rows[item.row].length;
  return (item.order + (port && item.w ? (port.x + port.w / 2) / item.w : 0.5)) / count;
}

function placeRows(rows) {
  for (const row of rows) {
    let x = 0;
    for (const item of row) {
      item.x = x;
      x += item.w + gapX;
    }
  }
  for (let sweep = 0; sweep < 12; ++sweep) {
    const isDown = sweep % 2 === 0;
    for (const row of isDown ? rows : [...rows].reverse())
      fitRow(row, item => isDown ? item.above : item.below);
  }
  compactTrunks(rows);
  for (const row of rows)
    if (row.some(item => item.kind === 'port')) fitRow(row, item => [...item.above, ...item.below]);
  const left = Math.min(...rows.flat().map(item => item.x), Infinity) - framePad;
  for (const row of rows)
    for (const item of row) item.x -= left;
}

/** Trunks beside all boxes come as near to them as they can. */
function compactTrunks(rows) {
  const trunks = new Map();
  for (const item of rows.flat())
    if (item.kind === 'dummy') trunks.set(item.trunk, [...(trunks.get(item.trunk) || []), item]);
  const isFree = (trunk, way) => trunk.every(item => rows[item.row].every(
      other => other.kind === 'dummy' || other.kind === 'port' || (other.order - item.order) * way < 0));
  for (const way of [1, -1]) { // those on the right to the left, those on the left to the right
    const free = [...trunks.values()].filter(trunk => isFree(trunk, way)).sort((a, b) => (a[0].x - b[0].x) * way);
    for (const trunk of free) {
      const slack = Math.min(...trunk.map(item => {
        const next = rows[item.row][item.order - way];
        return !next ? Infinity : way > 0 ? item.x - next.x - next.w - 8 : next.x - item.x - item.w - 8;
      }));
      if (slack > 0 && slack < Infinity) trunk.forEach(item => { item.x -= slack * way; });
    }
  }
}

/** As near to the neighbours as the order allows: pools adjacent violators. */
function fitRow(row, nearOf) {
  const pools = [];
  let offset = 0;
  for (const item of row) {
    const near = nearOf(item).map(side => ({at: besides(item, side), pull: pullOf(item, side.item)}));
    const pull = sum(near.map(side => side.pull));
    const wanted = pull > 0 ? sum(near.map(side => side.at * side.pull)) / pull : item.x;
    const weight = near.length === 0 ? 0.05 : item.lines ? 50 : item.kind === 'dummy' ? 4 : 1;
    let pool = {items: [item], offsets: [offset], weight, mean: wanted - offset};
    offset += item.w + (item.kind === 'dummy' ? 8 : gapX);
    while (pools.length > 0 && pools[pools.length - 1].mean > pool.mean) {
      const before = pools.pop();
      const total = before.weight + pool.weight;
      pool = {
        items: [...before.items, ...pool.items],
        offsets: [...before.offsets, ...pool.offsets],
        weight: total,
        mean: (before.mean * before.weight + pool.mean * pool.weight) / total
      };
    }
    pools.push(pool);
  }
  for (const pool of pools)
    pool.items.forEach((item, i) => {
      item.x = pool.mean + pool.offsets[i];
    });
}

/** Where an edge leaves or enters. */
function anchor({item, port}) { return item.x + (port ? port.x + port.w / 2 : item.w / 2); }

/** Trunks are nearly straight, and frames stand below frames, wherever their other edges go. */
function pullOf(item, near) {
  if (item.kind === 'dummy') return near.kind === 'dummy' ? 1 : near.lines ? 0.02 : 0.3;
  return item.lines && !near.lines ? 0.001 : 1;
}

/**
 * Where `item` had best be for one neighbour. Of frames below each other centres meet: ports would make a
 * staircase.
 */
function besides(item, side) {
  if (item.lines && side.item.lines) return side.item.x + (side.item.w - item.w) / 2;
  return anchor(side) - inner(item, side);
}

/** From the left of `item` to where the edge of `side` ends at it. */
function inner(item, side) {
  const back =
      (side.item.below || []).concat(side.item.above || []).find(other => other.item === item && other.port);
  return back ? back.port.x + back.port.w / 2 : item.w / 2;
}

function linePoints(chain) {
  const points = [];
  chain.forEach((side, index) => {
    const x = anchor(side);
    if (index > 0) points.push([x, side.item.y]);
    if (index < chain.length - 1) points.push([x, side.item.y + side.item.h]);
  });
  return points;
}

/** The report's data with what belongs together joined: nodes know their layer, sites, misses and kernels. */
function readReport(data) {
  const graph = data.graph || {};
  const report = {
    data,
    layers: (graph.layers || []).map((layer, index) => ({...layer, index, before: [], after: []})),
    folds: (graph.folds || []).map((fold, index) => ({...fold, index})),
    before: [],
    after: [],
    sites: [],
    misses: [],
    fusions: [],
    kernels: new Map(),
  };
  for (const side of ['before', 'after'])
    report[side] = (graph[side] || []).map((node, id) => readNode(report, side, node, id));
  for (const fold of report.folds)
    for (let i = 0; i < fold.layers * fold.times; ++i) report.layers[fold.first + i].fold = fold;
  for (const node of report.before)
    if (node.node !== undefined) report.after[node.node].members.push(node);
  readPatterns(report, data.patterns || {});
  readKernels(report, data);
  return report;
}

function readNode(report, side, node, id) {
  const read = {...node, id, side, members: [], sites: [], misses: [], launches: []};
  if (node.layer !== undefined) {
    read.place = report.layers[node.layer][side].length;
    report.layers[node.layer][side].push(read);
  }
  return read;
}

function readPatterns(report, patterns) {
  Object.entries(patterns).forEach(([name, pattern]) => {
    const fusion = {name, applies: pattern.applies !== false, sites: [], misses: []};
    for (const site of pattern.sites || []) {
      const read = {...site, fusion: name, target: report.after[site.node]};
      if (read.target) read.target.sites.push(read);
      fusion.sites.push(read);
      report.sites.push(read);
    }
    for (const miss of pattern.missed || []) {
      const read =
          {bytes: 0, ...miss, fusion: name, applies: fusion.applies, target: report.before[miss.node]};
      if (read.target) read.target.misses.push(read);
      fusion.misses.push(read);
      report.misses.push(read);
    }
    report.fusions.push(fusion);
  });
  const fired = report.fusions.filter(fusion => fusion.sites.length > 0);
  report.hues = new Map(fired.map((fusion, i) => [fusion.name, Math.round(205 + i * 137.5) % 360]));
}

function readKernels(report, data) {
  report.hasKernels = Array.isArray(data.kernel_sources);
  for (const kernel of data.kernel_sources || []) report.kernels.set(kernel.name, {...kernel, launches: []});
  for (const launch of data.launches || []) {
    const kernel = report.kernels.get(launch.kernel);
    const read = {...launch, target: report.after[launch.node]};
    if (kernel) kernel.launches.push(read);
    if (read.target) read.target.launches.push(read);
  }
}

/**
 * The node that stands for this one while its layers are folded: the same place of the first layer like it.
 */
function foldedNode(report, node) {
  const layer = report.layers[node.layer];
  if (!layer || layer.fold.times === 1) return node;
  const first = layer.fold.first + (layer.index - layer.fold.first) % layer.fold.layers;
  return report.layers[first][node.side][node.place];
}

/** `model.layers.0 ... model.layers.78` */
function foldTitle(report, fold) {
  const last = report.layers[fold.first + fold.layers * fold.times - 1];
  return `${report.layers[fold.first].name} \u2026 ${last.name}`;
}

/** `self_attn.o_proj` in its layer */
function placeOf(report, node) {
  const layer = report.layers[node.layer];
  const prefix = layer ? layer.name + '.' : '';
  return prefix && node.location.startsWith(prefix) ? node.location.slice(prefix.length) : node.location;
}

/** What search looks at. */
function textOf(node) {
  const kernels = node.launches.map(launch => launch.kernel);
  return [node.location, node.fusion || '', ...node.ops, ...new Set(kernels)].join(' ').toLowerCase();
}

/**
 * What is drawn of one side: a tree of frames (layers, folded layers) whose leaves are nodes or layers that
 * are shut. `open` holds what the user opened or shut, by key.
 */
function buildTree(report, side, open) {
  const root = {kind: 'root', key: 'root', children: [], ports: new Map()};
  const leaves = new Map();
  const frames = new Map();
  const add = (parent, item) => {
    item.parent = parent;
    parent.children.push(item);
    return item;
  };
  const frame = (key, parent, make) => {
    if (!frames.has(key)) frames.set(key, add(parent, {key, children: [], ...make()}));
    return frames.get(key);
  };
  const isOpen = (key, otherwise) => open.has(key) ? open.get(key) : otherwise;
  const alone = sum(report.folds.filter(fold => fold.times === 1).map(fold => fold.layers));
  for (const node of report[side]) {
    const layer = report.layers[node.layer];
    if (!layer) {
      leaves.set(node, add(root, {kind: 'node', key: `${side}${node.id}`, node}));
      continue;
    }
    const fold = layer.fold;
    const foldKey = `fold${fold.index}`;
    const isUnfolded = isOpen(foldKey, false);
    const shown = fold.times > 1 && !isUnfolded ? foldedNode(report, node) : node;
    if (shown !== node) continue;  // its leaf is the one that stands for it
    let parent = root;
    if (fold.times > 1) {
      parent = frame(foldKey, root, () => ({kind: 'fold', fold, isOpen: isUnfolded}));
      if (isUnfolded || fold.layers > 1) parent = layerFrame(layer, parent, isUnfolded ? false : true);
    } else {
      parent = layerFrame(layer, root, alone <= 6);
    }
    leaves.set(node, parent.isShut ? parent : add(parent, {kind: 'node', key: `${side}${node.id}`, node}));
  }
  function layerFrame(layer, parent, otherwise) {
    const key = `layer${layer.index}`;
    const isLayerOpen = isOpen(key, otherwise);
    return frame(key, parent, () => ({kind: 'layer', layer, isShut: !isLayerOpen}));
  }
  const leafOf = node => leaves.get(node) || leaves.get(foldedNode(report, node));
  const edges = new Map();
  for (const node of report[side])
    for (const input of node.inputs || []) {
      const from = leafOf(report[side][input]), to = leafOf(node);
      if (from !== to && !isCarried(report, report[side][input], node, open))
        edges.set(`${from.key} ${to.key}`, {from, to});
    }
  return {root, edges: [...edges.values()], leafOf};
}

/** From one of the folded layers to the next: drawn nowhere. */
function isCarried(report, from, to, open) {
  const a = report.layers[from.layer], b = report.layers[to.layer];
  if (!a || !b || a.fold !== b.fold || a.fold.times === 1 || open.get(`fold${a.fold.index}`)) return false;
  const time = layer => Math.floor((layer.index - layer.fold.first) / layer.fold.layers);
  return time(a) !== time(b);
}

/** The panel that says all about what was clicked. */
function showDetails(report, host, shown, actions) {
  host.replaceChildren(
      ...(!shown           ? welcome() :
              shown.kernel ? kernelDetails(report, shown.kernel, actions) :
                             nodeDetails(report, shown.node, actions)));
  host.scrollTop = 0;
}

function welcome() {
  return [element(
      'p', {class: 'quiet'},
      'Click an op, a fusion or a kernel to see what it is made of, what it moves and its CUDA source. ' +
          'Each colour is a fusion; ',
      element('span', {class: 'lostmark'}, '\u25cf'),
      ' marks where one that was missed would have saved traffic.')];
}

function heading(kind, name, hue) {
  return element(
      'h3', {style: hue === undefined ? undefined : `--hue:${hue}`, class: hue === undefined ? '' : 'fused'},
      element('small', {}, kind), name);
}

function facts(rows) {
  return element(
      'dl', {},
      rows.filter(([, value]) => value !== undefined && value !== null && value !== '')
          .map(([key, value]) => [element('dt', {}, key), element('dd', {}, value)]));
}

function link(text, act) { return element('button', {type: 'button', class: 'link', onclick: act}, text); }

function nodeDetails(report, node, actions) {
  const isGroup = node.side === 'after' && node.fusion;
  const layer = report.layers[node.layer];
  const alike = layer && layer.fold.times > 1 ? `${layer.name}; the same in ${layer.fold.times} layers` :
                                                layer && layer.name;
  const title = heading(
      isGroup                   ? 'fusion' :
          node.bytes === 0      ? 'view' :
          node.side === 'after' ? 'kernel of one op' :
                                  'op',
      isGroup ? node.fusion : node.ops.join(' \u2192 '),
      node.fusion ? report.hues.get(node.fusion) : undefined);
  const site = node.sites[0];
  const group = node.side === 'before' && node.node !== undefined ? report.after[node.node] : null;
  const times = site && site.microseconds;
  const parts = [
    title, facts([
      ['at', node.location],
      ['layer', alike],
      ['result', node.result],
      ['moves', node.bytes > 0 ? bytesText(node.bytes) : 'nothing: a view'],
      ['saves', site && bytesText(sum(node.sites.map(each => each.bytes_saved)))],
      ['time', times && `${timeText(times.fused)}, its ops by themselves ${timeText(times.unfused)}`],
      ['assumes', site && site.assumes],
      ['went into', group && group.fusion ? link(group.fusion, () => actions.select(group)) : undefined],
    ])
  ];
  if (isGroup) parts.push(element('h4', {}, 'Ops'), opsTable(report, node, actions));
  const misses = [...(node.side === 'before' ? node.misses : node.members.flatMap(member => member.misses))]
                     .filter(miss => miss.applies)
                     .sort((a, b) => b.bytes - a.bytes);
  const lines = new Map();  // of several ops of a group the same is said once
  for (const miss of misses) {
    const key = `${miss.fusion}: ${miss.reason}`;
    lines.set(key, {...miss, times: (lines.get(key)?.times || 0) + 1});
  }
  if (misses.length > 0)
    parts.push(
        element('h4', {}, 'Missed here'),
        element(
            'ul', {class: 'misses'},
            [...lines.values()].map(
                miss => element(
                    'li', {}, element('b', {}, miss.fusion),
                    miss.bytes > 0 ? ` (${bytesText(miss.bytes)})` : '', ': ', miss.reason,
                    miss.times > 1 ? ` (${miss.times} times)` : ''))));
  const target = group || node;
  parts.push(element('h4', {}, 'Kernels'), ...launchList(report, target, actions));
  return parts;
}

function opsTable(report, node, actions) {
  const members =
      node.members.length > 0 ? node.members : node.ops.map(op => ({ops: [op], location: '', result: ''}));
  return element(
      'table', {},
      members.map(
          member => element(
              'tr', {},
              element(
                  'td', {},
                  member.side ? link(opName(member.ops[0]), () => actions.select(member)) :
                                opName(member.ops[0])),
              element('td', {class: 'quiet'}, member.side ? placeOf(report, member) : ''),
              element('td', {class: 'quiet'}, member.result))));
}

const noKernels =
    'This report has no kernels: no plan was made when it was written. fusion-opt --report makes one.';

function launchList(report, node, actions) {
  if (!report.hasKernels)
    return [element(
        'p', {class: 'quiet'}, report.data.no_plan ? `No kernels: ${report.data.no_plan}` : noKernels)];
  if (node.launches.length === 0)
    return [element(
        'p', {class: 'quiet'},
        node.bytes > 0 ? 'No launch is known to be of this op.' : 'None: it is a view.')];
  return node.launches.map(
      launch => kernelBlock(report.kernels.get(launch.kernel), launch, node.launches.length === 1, actions));
}

function kernelBlock(kernel, launch, isOpen) {
  const notes = [
    launch.condition, launch.bytes > 0 && bytesText(launch.bytes),
    launch.microseconds > 0 && timeText(launch.microseconds), kernel.schedule
  ].filter(Boolean).join(' \u00b7 ');
  return element(
      'details', {class: 'kernel', ...(isOpen ? {open: ''} : {})},
      element('summary', {}, element('code', {}, kernel.name), element('span', {class: 'quiet'}, notes)),
      sourceOf(kernel));
}

function sourceOf(kernel) {
  if (!kernel.source)
    return element('p', {class: 'quiet'}, `No source: computed by ${kernel.library || 'a library'}.`);
  const copy = element(
      'button', {
        type: 'button',
        class: 'copy',
        onclick: () => {
          navigator.clipboard.writeText(kernel.source).then(() => {
            copy.textContent = 'Copied';
          }, () => {});
        }
      },
      'Copy');
  return element(
      'div', {class: 'source'}, copy, element('pre', {}, element('code', {}, coloured(kernel.source))));
}

const cudaWords = new RegExp(
    '(//[^\\n]*)|("(?:[^"\\\\\\n]|\\\\.)*")|(^#.*$)|\\b(template|typename|struct|using|const|' +
        'constexpr|static|auto|void|bool|int|float|unsigned|for|if|else|while|return|true|false|' +
        'f16|bf16|f32|f64|i64|i32|i8|u8|' +
        'KERNEL|KERNEL_RESIDENT|DEVICE|Vec)\\b',
    'gm');

/** Comments, strings, directives and words of the language in elements of their own. */
function coloured(source) {
  const parts = [];
  let from = 0;
  for (const match of source.matchAll(cudaWords)) {
    const kind = match[1] ? 'comment' : match[2] ? 'string' : match[3] ? 'directive' : 'word';
    parts.push(source.slice(from, match.index), element('span', {class: kind}, match[0]));
    from = match.index + match[0].length;
  }
  return [...parts, source.slice(from)];
}

function kernelDetails(report, kernel, actions) {
  const targets = [...new Set(kernel.launches.map(launch => launch.target).filter(Boolean))];
  const times = kernel.launches.map(launch => launch.microseconds || 0);
  return [
    heading('kernel', kernel.name), facts([
      ['schedule', kernel.schedule],
      ['threads', kernel.threads && `${kernel.threads} a block`],
      ['launches', kernel.launches.length],
      ['time', sum(times) > 0 ? `${timeText(sum(times))} of all launches` : undefined],
      ['when', [...new Set(kernel.launches.map(launch => launch.condition).filter(Boolean))].join('; ')],
      [
        'computes',
        targets.length > 0 ? element(
                                 'span', {},
                                 targets.slice(0, 5).map(
                                     node =>
                                         [link(
                                              `${node.fusion || opName(node.ops[0])} at ${node.location}`,
                                              () => actions.select(node)),
                                          element('br')]),
                                 targets.length > 5 ? `and ${targets.length - 5} more` : '') :
                                                      undefined
      ],
    ]),
    sourceOf(kernel)
  ];
}

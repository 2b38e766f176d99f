// Where brokers stand: a tree from its middle outwards, each branch in a sector of its own.

function middleOf(beside, names) {
  // The broker whose furthest other one is nearest: the middle of a longest path.
  const furthest = (start) => {
    const before = new Map([[start, null]]);
    const order = [start];
    for (const name of order) {
      for (const other of beside.get(name)) {
        if (!before.has(other)) {
          before.set(other, name);
          order.push(other);
        }
      }
    }
    return { last: order[order.length - 1], before };
  };
  const one = furthest(names[0]).last;
  const { last, before } = furthest(one);
  const path = [];
  for (let name = last; name !== null; name = before.get(name)) path.push(name);
  return path[Math.floor(path.length / 2)];
}

// Places by name, within a box of the given width and height around (0, 0).
export function placesOf(brokers, links, width, height, root) {
  const names = brokers.map((broker) => broker.id);
  const beside = new Map(names.map((name) => [name, []]));
  for (const link of links) {
    if (beside.has(link.a) && beside.has(link.b)) {
      beside.get(link.a).push(link.b);
      beside.get(link.b).push(link.a);
    }
  }
  for (const others of beside.values()) others.sort();
  const places = new Map();
  if (!names.length) return { places, root: null };
  const start = root !== null && beside.has(root) ? root : middleOf(beside, names);
  const children = new Map();
  const depth = new Map();
  const order = [];
  const walk = (first, level) => {
    depth.set(first, level);
    const queue = [first];
    for (const name of queue) {
      order.push(name);
      const below = beside.get(name).filter((other) => !depth.has(other));
      for (const other of below) depth.set(other, depth.get(name) + 1);
      children.set(name, below);
      queue.push(...below);
    }
  };
  walk(start, 0);
  // Parts that no link leads to stand around the middle, too.
  for (const name of names) {
    if (!depth.has(name)) {
      children.get(start).push(name);
      walk(name, 1);
    }
  }
  const weight = new Map();
  for (const name of [...order].reverse()) {
    const below = children.get(name);
    weight.set(name, below.length ? below.reduce((sum, other) => sum + weight.get(other), 0) : 1);
  }
  const deepest = Math.max(1, ...depth.values());
  const place = (name, from, to) => {
    const angle = (from + to) / 2;
    // Inner rings are a little wider apart than outer ones.
    const share = depth.get(name) === 0 ? 0 : Math.pow(depth.get(name) / deepest, 0.85);
    places.set(name, { x: (width / 2) * share * Math.cos(angle), y: (height / 2) * share * Math.sin(angle) });
    let begin = from;
    for (const other of children.get(name)) {
      const end = begin + ((to - from) * weight.get(other)) / Math.max(1, weight.get(name));
      place(other, begin, end);
      begin = end;
    }
  };
  place(start, -Math.PI / 2, 1.5 * Math.PI);
  fill(places, width, height);
  return { places, root: start };
}

// Stretches the places to the whole box; a line of brokers is not made a plane.
function fill(places, width, height) {
  for (const [axis, size] of [["x", width], ["y", height]]) {
    const all = [...places.values()].map((place) => place[axis]);
    const low = Math.min(...all);
    const high = Math.max(...all);
    if (high - low < size / 20) continue;
    for (const place of places.values()) place[axis] = ((place[axis] - low) / (high - low) - 0.5) * size;
  }
}

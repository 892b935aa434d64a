// The colour of a topic follows from its name, so that it is the same in every view, after a reload, and whatever
// other topics there are.
//
// There are more topics than colours that can be told apart.  If the colour of a name is close to that of another one, it
// gets the free one that is farthest from all others, and the browser remembers that: as numbers, not as names.

const colours = 24;  // Properties of the style sheet, in the order of their hues.
const apart = 3;  // Eight topics, as many as a picture shows, can be so far apart.
const store = "tarry.topic-colours";

const given = new Map();  // By name.
const users = new Map();  // By colour: the hash of the name that has it.
const moved = remembered();  // By hash: those that could not have the colour of their name, and those that they would have been too close to.
for (const [hash, colour] of moved) users.set(colour, hash);

// FNV-1a, in 32 bits.
function hashOf(name) {
  let hash = 0x811c9dc5;
  for (const byte of new TextEncoder().encode(name)) hash = Math.imul(hash ^ byte, 0x01000193) >>> 0;
  return hash;
}

const own = (hash) => ((hash ^ (hash >>> 16)) >>> 0) % colours;

// On the circle of hues.
const distance = (one, other) => Math.min((one - other + colours) % colours, (other - one + colours) % colours);
const nearest = (colour) => [...users.keys()].reduce((least, each) => Math.min(least, distance(colour, each)), colours);

// The one that is farthest from those in use; of several the next one after `from`.
function farthest(from) {
  let best = from;
  for (let shift = 1; shift < colours; ++shift) {
    const colour = (from + shift) % colours;
    if (nearest(colour) > nearest(best)) best = colour;
  }
  return best;
}

// These topics are shown together: no two of them have the same colour, as long as there are enough.
export function giveColours(names) {
  for (const name of [...names].sort()) {
    if (given.has(name)) continue;
    const hash = hashOf(name);
    let colour = moved.get(hash) ?? own(hash);
    if (users.size < colours && users.get(colour) !== hash && nearest(colour) < apart) {
      colour = farthest(colour);
      moved.set(hash, colour);
      // The others too: after a reload they come in another order.
      for (const [user, owner] of users) moved.set(owner, user);
      remember();
    }
    if (!users.has(colour)) users.set(colour, hash);
    given.set(name, colour);
  }
}

// As the name of a property of the style sheet.
export function colourOf(name) {
  const hash = hashOf(name);
  return `--topic-${given.get(name) ?? moved.get(hash) ?? own(hash)}`;
}

function remembered() {
  try {
    const entries = JSON.parse(localStorage.getItem(store) ?? "[]");
    return new Map(entries.filter(([hash, colour]) => Number.isInteger(hash) && Number.isInteger(colour) && colour >= 0 && colour < colours));
  } catch {
    return new Map();
  }
}

function remember() {
  try {
    localStorage.setItem(store, JSON.stringify([...moved]));
  } catch {
    // Then it is forgotten with the page.
  }
}

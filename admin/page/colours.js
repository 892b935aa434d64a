// The colour of a topic follows from its name, so that it is the same in every view, after a reload, and whatever
// other topics there are.
//
// There are more topics than colours that can be told apart.  If the colour of a name is taken by another one, it
// gets the next free one, and the browser remembers that: as numbers, not as names.

const colours = 24;  // Properties of the style sheet.
const step = 7;  // To one that looks different; it meets all of them.
const store = "tarry.topic-colours";

const given = new Map();  // By name.
const users = new Map();  // By colour: the hash of the name that has it.
const moved = remembered();  // By hash: those that could not have the colour of their name.
for (const [hash, colour] of moved) users.set(colour, hash);

// FNV-1a, in 32 bits.
function hashOf(name) {
  let hash = 0x811c9dc5;
  for (const byte of new TextEncoder().encode(name)) hash = Math.imul(hash ^ byte, 0x01000193) >>> 0;
  return hash;
}

const own = (hash) => ((hash ^ (hash >>> 16)) >>> 0) % colours;

// These topics are shown together: no two of them have the same colour, as long as there are enough.
export function giveColours(names) {
  for (const name of [...names].sort()) {
    if (given.has(name)) continue;
    const hash = hashOf(name);
    let colour = moved.get(hash) ?? own(hash);
    if (users.size < colours && (users.get(colour) ?? hash) !== hash) {
      while (users.has(colour)) colour = (colour + step) % colours;
      moved.set(hash, colour);
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

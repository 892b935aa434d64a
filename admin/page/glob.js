// Patterns of names as the broker has them (base/glob.h), for names that the page has already: * is any text, ? any one character, and a
// class such as [a-c] or [!x] one of these, or any other.

const isNegation = (character) => character === "!" || character === "^";

// The place behind the class that begins with the [ at `at`; 0: none begins there.
function classEnd(pattern, at) {
  if (pattern[at] !== "[") return 0;
  const first = at + 1 + (isNegation(pattern[at + 1]) ? 1 : 0);
  // Behind the first member, which may be a ] itself.
  return pattern.indexOf("]", first + 1) + 1;
}

// Whether a class has the character; `members` are between its brackets.
function hasMember(members, character) {
  const isNegated = isNegation(members[0]);
  let found = false;
  for (let i = isNegated ? 1 : 0; i < members.length && !found; i += 1) {
    const isRange = i + 2 < members.length && members[i + 1] === "-";
    found = members[i] <= character && character <= members[isRange ? i + 2 : i];
    if (isRange) i += 2;
  }
  return found !== isNegated;
}

// The place behind the element at `p`, if that stands for the character and is no star; else 0.
function behindMatch(pattern, p, character) {
  if (p === pattern.length) return 0;
  const end = classEnd(pattern, p);
  if (end) return hasMember(pattern.slice(p + 1, end - 1), character) ? end : 0;
  return pattern[p] === "?" || pattern[p] === character ? p + 1 : 0;
}

// Whether the whole text matches.
export function matchesGlob(pattern, text) {
  let [p, t, star, tried] = [0, 0, -1, 0];
  while (t < text.length) {
    const next = pattern[p] === "*" ? 0 : behindMatch(pattern, p, text[t]);
    if (pattern[p] === "*") {
      star = p;
      p += 1;
      tried = t;
    } else if (next) {
      p = next;
      t += 1;
    } else if (star >= 0) {
      // The last star takes one character more; earlier ones need not try again.
      p = star + 1;
      tried += 1;
      t = tried;
    } else return false;
  }
  while (pattern[p] === "*") p += 1;
  return p === pattern.length;
}

// Whether the text may match another than itself.
export function isPattern(text) {
  if (/[*?]/.test(text)) return true;
  for (let at = text.indexOf("["); at >= 0; at = text.indexOf("[", at + 1)) if (classEnd(text, at)) return true;
  return false;
}

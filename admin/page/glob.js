// Which names are patterns, as the broker has them (base/glob.h): * is any text, ? any one character, and a class such as [a-c] or [!x] one of
// these, or any other.

const isNegation = (character) => character === "!" || character === "^";

// The place behind the class that begins with the [ at `at`; 0: none begins there.
function classEnd(pattern, at) {
  if (pattern[at] !== "[") return 0;
  const first = at + 1 + (isNegation(pattern[at + 1]) ? 1 : 0);
  // Behind the first member, which may be a ] itself.
  return pattern.indexOf("]", first + 1) + 1;
}

// Whether the text may match another than itself.
export function isPattern(text) {
  if (/[*?]/.test(text)) return true;
  for (let at = text.indexOf("["); at >= 0; at = text.indexOf("[", at + 1)) if (classEnd(text, at)) return true;
  return false;
}

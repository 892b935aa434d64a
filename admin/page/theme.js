// Before anything is drawn, so that a dark page does not flash white.  No module: those run too late.
{
  let theme = null;
  try {
    theme = localStorage.getItem("tarry.theme");
  } catch {
    // Storage may be forbidden; the system's theme is shown then.
  }
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
}

/* The theme that the person chose, before anything is drawn. */
try {
  const theme = localStorage.getItem("hposvc-theme");
  if (theme) document.documentElement.dataset.theme = theme;
} catch { /* a browser may forbid storage */ }

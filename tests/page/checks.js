// What is wrong with the page for those who see, hear or type it otherwise; an empty list is good.
() => {
  const problems = [];
  const shown = (node) => {
    const style = getComputedStyle(node);
    const box = node.getBoundingClientRect();
    return style.visibility !== "hidden" && style.display !== "none" && box.width > 1 && box.height > 1 && !node.closest(".hidden-but-read, .skip");
  };
  const where = (node) => `${node.tagName.toLowerCase()}.${node.getAttribute("class") ?? ""} ${JSON.stringify((node.textContent ?? "").trim().slice(0, 40))}`;

  // Contrast (WCAG 2 AA): each text against what is painted behind it.
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [1, 1];
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  const rgba = (text) => {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = text;
    pen.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below) => top.slice(0, 3).map((c, i) => c * top[3] + below[i] * (1 - top[3]));
  const behind = (node) => {
    const layers = [];
    for (let at = node; at; at = at.parentElement) layers.push(rgba(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255]);
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    const node = text.parentElement;
    if (!text.data.trim() || !shown(node) || node.closest("noscript, title, :disabled")) continue;
    const style = getComputedStyle(node);
    let ground = behind(node);
    const box = node.closest("svg") && node.closest(".node")?.querySelector(".box");
    if (box) ground = over(rgba(getComputedStyle(box).fill), ground);
    const ink = over(rgba(node.closest("svg") ? style.fill : style.color), ground);
    const size = parseFloat(style.fontSize);
    const least = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    if (contrast(ink, ground) < least) problems.push(`contrast ${contrast(ink, ground).toFixed(2)} of ${where(node)}`);
  }

  // Names of what can be used, and of regions.
  const named = (node) => {
    const by = (node.getAttribute("aria-labelledby") ?? "").split(" ").map((id) => document.getElementById(id)?.textContent ?? "").join("");
    const labels = [...(node.labels ?? [])].map((label) => label.textContent).join("");
    return [node.getAttribute("aria-label"), by, labels, node.tagName === "INPUT" ? "" : node.textContent, node.getAttribute("alt")].some((text) => text?.trim());
  };
  for (const node of document.querySelectorAll("a, button, input, select, textarea, [role=button], [role=img], [role=region], [role=dialog], dialog, table, nav, [tabindex='0']")) {
    if (!shown(node)) continue;
    const isNamed = named(node) || (node.tagName === "TABLE" && node.caption?.textContent.trim());
    if (!isNamed) problems.push(`no name: ${where(node)}`);
  }
  for (const node of document.querySelectorAll("a, button, [role=button]")) {
    const box = node.getBoundingClientRect();
    if (shown(node) && !node.closest("p, td, th, svg") && (box.width < 24 || box.height < 24)) problems.push(`too small: ${where(node)}`);
  }

  // Structure: one h1, no level left out, one main, ids once, references that lead somewhere.
  const headings = [...document.querySelectorAll("main :is(h1, h2, h3, h4)")].filter(shown);
  if (headings.filter((node) => node.tagName === "H1").length !== 1) problems.push("not one h1");
  headings.reduce((before, node) => {
    const level = Number(node.tagName[1]);
    if (level > before + 1) problems.push(`${node.tagName.toLowerCase()} after h${before}: ${where(node)}`);
    return level;
  }, 0);
  if (document.querySelectorAll("main").length !== 1) problems.push("not one main");
  const ids = [...document.querySelectorAll("[id]")].map((node) => node.id);
  for (const id of ids) if (ids.filter((other) => other === id).length > 1) problems.push(`id ${id} twice`);
  for (const name of ["aria-controls", "aria-labelledby", "aria-describedby"]) {
    for (const node of document.querySelectorAll(`[${name}]`)) {
      for (const id of node.getAttribute(name).split(" ")) if (!document.getElementById(id)) problems.push(`${name} of ${where(node)} leads nowhere`);
    }
  }

  // Focus goes through the page as one reads it.
  for (const node of document.querySelectorAll("[tabindex]")) if (node.tabIndex > 0) problems.push(`tabindex of ${where(node)}`);
  return [...new Set(problems)];
}

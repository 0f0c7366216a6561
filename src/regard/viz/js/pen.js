// Two pens with the same strokes: on a canvas for the screen, and in SVG for saved pictures.

import { canvasContext, FAMILY, font, node, svg } from "./dom.js";

/** @import { Level } from "./matrix.js" */

/** @typedef {{ fill?: string, stroke?: string, width?: number, dash?: number[], opacity?: number, round?: number }} Ink `round`: radius of the corners */
/** @typedef {{ fill?: string, align?: "start" | "middle" | "end", bold?: boolean, turned?: boolean, size?: number }} Lettering */
/** @typedef {{ top: number, left: number, high: number, wide: number }} Cut a part of a level */
/** @typedef {{ x: number, y: number, width: number, height: number }} Box */

/**
 * A part of a level on its own canvas, one pixel for each value.
 * @param {Level} level @param {Cut} part @param {(value: number) => number} colour
 */
export function pixels({ values, columns }, { top, left, high, wide }, colour) {
  const canvas = node("canvas", { width: wide, height: high });
  const context = canvasContext(canvas);
  const image = context.createImageData(wide, high);
  const output = new Uint32Array(image.data.buffer);
  for (let row = 0; row < high; row += 1) {
    const begin = (top + row) * columns + left;
    for (let column = 0; column < wide; column += 1) output[row * wide + column] = colour(values[begin + column]);
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

export class CanvasPen {
  /** @param {CanvasRenderingContext2D} context */
  constructor(context) {
    this.context = context;
    this.vector = false;
  }

  /** @param {Box} box @param {Ink} ink */
  rect({ x, y, width, height }, { fill, stroke, width: thick = 1, dash = [], opacity = 1, round = 0 }) {
    const { context } = this;
    context.globalAlpha = opacity;
    context.beginPath();
    context.roundRect(x, y, width, height, round);
    if (fill) {
      context.fillStyle = fill;
      context.fill();
    }
    if (stroke) {
      Object.assign(context, { strokeStyle: stroke, lineWidth: thick });
      context.setLineDash(dash);
      context.stroke();
      context.setLineDash([]);
    }
    context.globalAlpha = 1;
  }

  /** @param {number[]} from @param {number[]} to @param {Ink} ink */
  line([x1, y1], [x2, y2], { stroke = "", width = 1, opacity = 1 }) {
    const { context } = this;
    Object.assign(context, { strokeStyle: stroke, lineWidth: width, globalAlpha: opacity });
    context.beginPath();
    context.moveTo(x1, y1);
    context.lineTo(x2, y2);
    context.stroke();
    context.globalAlpha = 1;
  }

  /** @param {number} x @param {number} y middle of the letters @param {string} text @param {Lettering} lettering */
  text(x, y, text, { fill = "", align = "start", bold = false, turned = false, size = undefined }) {
    const { context } = this;
    context.save();
    context.translate(x, y);
    if (turned) context.rotate(-Math.PI / 2);
    const textAlign = /** @type {CanvasTextAlign} */ ({ start: "left", middle: "center", end: "right" }[align]);
    Object.assign(context, {
      font: font(bold, size),
      fillStyle: fill,
      textAlign,
      textBaseline: "middle",
      direction: "ltr",
    });
    context.fillText(text, 0, 0);
    context.restore();
  }

  /** @param {CanvasImageSource} source @param {Box} box @param {{ grey?: boolean, smooth?: boolean, opacity?: number }} [how] */
  image(source, { x, y, width, height }, { grey = false, smooth = false, opacity = 1 } = {}) {
    const { context } = this;
    context.save();
    context.imageSmoothingEnabled = smooth;
    context.globalAlpha = opacity;
    if (grey) context.filter = "grayscale(1)";
    context.drawImage(source, x, y, width, height);
    context.restore();
  }

  /** Draws inside a box. @param {Box} box @param {() => void} draw */
  clip({ x, y, width, height }, draw) {
    const { context } = this;
    context.save();
    context.beginPath();
    context.rect(x, y, width, height);
    context.clip();
    draw();
    context.restore();
  }
}

export class SvgPen {
  /** @param {SVGElement} group */
  constructor(group) {
    this.group = group;
    this.vector = true;
  }

  /** @param {Box} box @param {Ink & { class?: string }} ink */
  rect(box, { fill = "none", stroke, width, dash, opacity, round, ...more }) {
    const line = stroke && { stroke, "stroke-width": width ?? 1, "stroke-dasharray": dash?.join(" ") };
    this.group.append(svg("rect", { ...box, fill, ...line, opacity, rx: round, ...more }));
  }

  /** @param {number[]} from @param {number[]} to @param {Ink} ink */
  line([x1, y1], [x2, y2], { stroke, width, opacity }) {
    this.group.append(svg("line", { x1, y1, x2, y2, stroke, "stroke-width": width, "stroke-opacity": opacity }));
  }

  /** @param {number} x @param {number} y @param {string} text @param {Lettering} lettering */
  text(x, y, text, { fill, align = "start", bold = false, turned = false, size = undefined }) {
    const place = turned ? { transform: `translate(${x} ${y}) rotate(-90)`, dy: "0.35em" } : { x, y, dy: "0.35em" };
    const weight = bold ? { "font-weight": "bold" } : {};
    const lettering = { fill, "text-anchor": align, "font-size": size, "font-family": FAMILY, ...weight };
    this.group.append(svg("text", { ...place, ...lettering }, text));
  }

  /** @param {CanvasImageSource} source @param {Box} box @param {{ grey?: boolean, smooth?: boolean, opacity?: number }} [how] */
  image(source, box, { grey = false, smooth = false, opacity = 1 } = {}) {
    const href =
      source instanceof HTMLImageElement ? source.src : /** @type {HTMLCanvasElement} */ (source).toDataURL();
    const how = { preserveAspectRatio: "none", opacity, filter: grey ? "grayscale(1)" : undefined };
    const picture = svg("image", { ...box, ...how, href });
    if (!smooth) picture.style.imageRendering = "pixelated";
    this.group.append(picture);
  }

  /** @param {Box} _ @param {() => void} draw */
  clip(_, draw) {
    draw(); // nothing is zoomed in a saved picture
  }
}

/** @typedef {CanvasPen | SvgPen} Pen */

// The gallery of heads as an SVG picture.

import { node, svg } from "./dom.js";
import { headName } from "./labels.js";
import { legendLine } from "./legend.js";
import { widestText, textWidth } from "./text-width.js";
import { galleryRows, thumbPixels } from "./overview.js";
import { shortRole, headRole } from "./roles.js";
import { AROUND, PANEL, placeKey, sheet, TITLE } from "./sheet.js";
import { shortImportance } from "./importance.js";

/** @import { Palette } from "./colours.js" */
/** @import { Scene } from "./scene.js" */

const THUMB = 136; // pixels between heads

/**
 * All heads of all layers as small heatmaps, in the displayed order.
 *
 * @param {Scene} scene
 * @param {Palette} colours
 */
export function galleryPicture(scene, colours) {
  const { map, data } = scene;
  const words = `${map.task}: ${map.input}`;
  const rows = galleryRows(scene);
  const sorted = rows.length === 1 && map.layers.length > 1;
  const columns = Math.max(...rows.map((heads) => heads.length));
  const beside = Math.max(1, Math.min(columns, Math.floor((2 * PANEL) / THUMB)));
  const key = legendLine(scene, colours, textWidth);
  const titles = rows.map((heads) => heads[0]?.layer.title ?? "");
  const wide = Math.max(beside * THUMB, widestText([words, ...titles]), key.width) + 2 * AROUND;
  const group = svg("g");
  let y = AROUND + TITLE;
  for (const [place, heads] of rows.entries()) {
    const tallest = Math.max(...heads.map((head) => thumbPixels(scene, head, colours).height));
    const high = tallest + 18 + 15 * (1 + Number(sorted) + Number(Boolean(data.roles?.[heads[0].layer.name])));
    group.append(svg("text", { x: AROUND, y, "font-weight": "bold" }, sorted ? "" : titles[place]));
    heads.forEach((head, number) => {
      const x = AROUND + (number % beside) * THUMB;
      const top = y + 10 + Math.floor(number / beside) * high;
      const { canvas, width, height } = thumbPixels(scene, head, colours);
      const worth = head.worth ? ` ${shortImportance(head.worth)}` : "";
      const role = headRole(data, head.layer.name, head.head);
      const lines = [
        `${headName(head.layer, head.head)}${worth}`,
        ...(sorted ? [head.layer.name] : []),
        ...(role ? [shortRole(role)] : []),
      ];
      group.append(svg("image", { x, y: top, width, height, href: enlargeCanvas(canvas, width, height) }));
      group.append(
        svg("rect", { x, y: top, width, height, fill: "none", stroke: colours.ink, "stroke-opacity": 0.3 }),
      );
      lines.forEach((line, at) => {
        const shortened = { textLength: THUMB - 8, lengthAdjust: "spacingAndGlyphs" };
        const fit = textWidth(line) > THUMB - 8 ? shortened : {};
        group.append(svg("text", { ...fit, x, y: top + height + 14 + 15 * at, "font-size": 11 }, line));
      });
    });
    y += Math.ceil(heads.length / beside) * high + TITLE;
  }
  const picture = sheet(wide, y + 1.5 * TITLE, colours);
  picture.append(svg("text", { x: AROUND, y: AROUND, "font-weight": "bold" }, words), group);
  placeKey(picture, key.group, y + TITLE / 2);
  return picture;
}

/**
 * A canvas as a data URL, enlarged so that its cells stay sharp.
 *
 * @param {HTMLCanvasElement} canvas
 * @param {number} width
 * @param {number} height
 */
function enlargeCanvas(canvas, width, height) {
  const times = Math.max(1, Math.ceil((3 * Math.max(width, height)) / Math.max(canvas.width, canvas.height)));
  const large = node("canvas", { width: canvas.width * times, height: canvas.height * times });
  const context = large.getContext("2d");
  if (context) {
    context.imageSmoothingEnabled = false;
    context.drawImage(canvas, 0, 0, large.width, large.height);
  }
  return large.toDataURL();
}

// Saving the displayed weights to a file: a picture (SVG, PNG) or numbers (CSV).

import { collectMetadata } from "./metadata.js";
import { formatCsv } from "./csv.js";
import { button, node, oneTabStop } from "./dom.js";
import { withIcon } from "./icons.js";
import { makePicture } from "./pictures.js";
import { addPngText } from "./png.js";

/** @import { Palette } from "./colours.js" */
/** @import { Scene } from "./scene.js" */

const MOST_CELLS = 60_000; // a picture of more cells would open more slowly than the page
const SHARP = 2; // PNG pixels per CSS pixel

/**
 * @param {Scene} scene
 * @param {Palette} colours
 * @param {HTMLElement} stage contains the lines, if they are displayed
 */
export function saveButtons(scene, colours, stage) {
  const name = `${scene.map.task}-${scene.layer.name}`.replace(/[^\w.-]+/g, "_");
  const picture = () => makePicture(scene, colours, stage);
  const label = withIcon(node("span", { class: "quiet" }, "Save"), "save");
  /** @type {HTMLElement[]} */
  const pictures = [];
  const { matrix, state } = scene;
  const small = ["picture", "overview"].includes(state.mode);
  if (small || matrix.rows * matrix.columns * matrix.shown(state).length <= MOST_CELLS) {
    pictures.push(
      button("PNG", async () =>
        save(`${name}.png`, await addPngText(await rasterize(picture()), collectMetadata(scene, colours))),
      ),
      button("SVG", () => save(`${name}.svg`, new Blob([serialize(picture())], { type: "image/svg+xml" }))),
    );
  }
  const csv = button("CSV", () =>
    save(`${name}.csv`, new Blob([formatCsv(scene, colours)], { type: "text/csv" })),
  );
  const allHeads = {
    ...state,
    mode: "overview",
    chart: "heads",
    sorted: false,
    head: null,
    off: "",
    mean: false,
  };
  const poster = button("Poster of all heads", async () => {
    const all = /** @type {Scene} */ ({ ...scene, changes: null, effect: false, beside: null, state: allHeads });
    const drawn = await rasterize(makePicture(all, colours, stage));
    save(`${scene.map.task}-all-heads.png`, await addPngText(drawn, collectMetadata(all, colours)));
  });
  poster.title = "All heads of all layers as one PNG picture, for a slide or a paper";
  const buttons = [...pictures, csv, withIcon(poster, "overview")];
  oneTabStop(buttons, 0);
  return [label, ...buttons];
}

/** @param {SVGSVGElement} picture */
function serialize(picture) {
  return new XMLSerializer().serializeToString(picture);
}

/**
 * @param {SVGSVGElement} picture
 * @returns {Promise<Blob>}
 */
async function rasterize(picture) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(serialize(picture))}`;
  await image.decode();
  const canvas = node("canvas", { width: SHARP * image.width, height: SHARP * image.height });
  canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) => {
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("the picture is too large to be saved"))));
  });
}

/**
 * @param {string} name
 * @param {Blob} blob
 */
function save(name, blob) {
  const link = node("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// Short names of layers: the part in which the layers of a kind differ, usually a number.

/** @import { LayerData } from "./data.js" */

/**
 * The short name of each layer, by its name.
 *
 * @param {Pick<LayerData, "name" | "kind">[]} layers
 * @returns {Map<string, string>}
 */
export function shortNames(layers) {
  /** @type {Map<string, string>} */
  const names = new Map();
  for (const kind of new Set(layers.map((layer) => layer.kind))) {
    const alike = layers.filter((layer) => layer.kind === kind);
    const parts = alike.map((layer) => layer.name.split(/[._/]/));
    const same = (/** @type {number} */ place) => parts.every((words) => words[place] === parts[0][place]);
    alike.forEach((layer, index) => {
      const own = parts[index].filter((_, place) => !same(place)).join(".");
      names.set(layer.name, own.length > 0 && own.length <= 8 ? own : String(index));
    });
  }
  return names;
}

/**
 * The short name of each layer, after its kind if the layers are of several kinds: `cross 1`.
 *
 * @param {Pick<LayerData, "name" | "kind">[]} layers
 * @returns {Map<string, string>}
 */
export function namesWithKind(layers) {
  const names = shortNames(layers);
  const several = new Set(layers.map((layer) => layer.kind)).size > 1;
  return several ? new Map(layers.map(({ name, kind }) => [name, `${kind} ${names.get(name)}`])) : names;
}

/**
 * The name of a layer in the page: its title, unless that is the path of a module.
 *
 * @param {Pick<LayerData, "name" | "title" | "kind">} layer
 * @param {Pick<LayerData, "name" | "kind">[]} layers
 */
export function layerTitle(layer, layers) {
  if (layer.title !== layer.name || !/[._/]/.test(layer.name)) return layer.title;
  return `layer ${shortNames(layers).get(layer.name)}`;
}

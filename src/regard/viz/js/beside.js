// What may stand beside the map that is shown: before it was touched, another input, another snapshot, another model.

/** @import { LayerData, MapData, ViewData } from "./data.js" */
/** @import { State } from "./state.js" */

const MOST_SNAPSHOTS = 12; // that are offered

/** @typedef {{ key: string, name: string, map: MapData }} Other */

/**
 * All that may stand beside what is shown.
 *
 * @param {ViewData} data
 * @param {MapData} map what is shown
 * @returns {Other[]}
 */
export function othersOf({ maps, original, playback, beside }, map) {
  const same = (beside ?? []).filter((each) => maps.length === 1 || each.map.input === map.input);
  const found = same.map((each, number) => ({
    key: `model-${number}`,
    name: each.name,
    map: each.map,
  }));
  if (original) found.push({ key: "original", name: "before it was touched", map: original });
  maps.forEach((each, number) => found.push({ key: `input-${number}`, name: each.input, map: each }));
  const frames = playback?.frames ?? [];
  const every = Math.ceil(frames.length / MOST_SNAPSHOTS) || 1;
  frames.forEach((each, number) => {
    if (number % every !== 0) return;
    const steps = playback?.steps[number].toLocaleString("en");
    found.push({ key: `snapshot-${number}`, name: `after ${steps} training steps`, map: each });
  });
  return found.filter((each) => each.map !== map && each.map.layers.length);
}

/**
 * What was chosen to stand beside, null where nothing was.
 *
 * @param {ViewData} data
 * @param {MapData} map
 * @param {Pick<State, "beside">} state
 */
export function otherOf(data, map, { beside }) {
  return (beside && othersOf(data, map).find((each) => each.key === beside)) || null;
}

/**
 * Its layer of the same name as one that is shown; where they have no name in common, that at the same place among
 * those of one kind, if there are as many; null where there is none. `layers_alike` in alike.py does the same.
 *
 * @param {ViewData} data
 * @param {MapData} map
 * @param {LayerData} layer
 * @param {Pick<State, "beside">} state
 */
export function besideOf(data, map, layer, state) {
  const other = otherOf(data, map, state);
  const found = other && layerAlike(map.layers, other.map.layers, layer);
  if (!other || !found) return null;
  return { name: found.name === layer.name ? other.name : `${other.name}, ${found.title}`, layer: found };
}

/**
 * @param {LayerData[]} own
 * @param {LayerData[]} others
 * @param {LayerData} layer one of `own`
 */
function layerAlike(own, others, layer) {
  const named = new Map(others.map((each) => [each.name, each]));
  if (own.some((each) => named.has(each.name))) return named.get(layer.name);
  const [ours, theirs] = [own, others].map((layers) => layers.filter((each) => each.kind === layer.kind));
  const place = ours.findIndex((each) => each.name === layer.name);
  return ours.length === theirs.length ? theirs[place] : undefined;
}

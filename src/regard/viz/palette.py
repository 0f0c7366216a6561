"""The colours of weights, the same in pictures as in the page on light paper (`view/colours.js`)."""

BLUES = (
    *("#ffffff", "#deebf7", "#c6dbef", "#9ecae1", "#6baed6"),
    *("#4292c6", "#2171b5", "#08519c", "#08306b"),
)
"""From no weight to the largest."""


def shades(count: int) -> list[tuple[float, float, float]]:
    """Return so many colours (red, green, blue, 0 to 1) from no weight to the largest, evenly apart."""
    stops = [tuple(int(stop[at : at + 2], 16) / 255 for at in (1, 3, 5)) for stop in BLUES]
    found = []
    for index in range(count):
        place = index / max(count - 1, 1) * (len(stops) - 1)
        low = min(int(place), len(stops) - 2)
        pairs = zip(stops[low], stops[low + 1], strict=True)
        red, green, blue = (one + (place - low) * (other - one) for one, other in pairs)
        found.append((red, green, blue))
    return found

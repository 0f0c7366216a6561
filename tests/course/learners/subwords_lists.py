def replace(text, left, right, new):
    result = []
    for token in text:
        if result and result[-1] == left and token == right:
            result[-1] = new
        else:
            result.append(token)
    return result


def learn_merges(tokens, count, first):
    text = list(map(int, tokens))
    merges = []
    while len(merges) < count:
        best, most = None, 0
        for i in range(len(text) - 1):
            times = 0
            for j in range(len(text) - 1):
                if text[j] == text[i] and text[j + 1] == text[i + 1]:
                    times += 1
            if times > most:
                best, most = (text[i], text[i + 1]), times
        text = replace(text, best[0], best[1], first + len(merges))
        merges.append(best)
    return merges, text


def apply_merges(tokens, merges, first):
    text = list(map(int, tokens))
    for number, pair in enumerate(merges):
        text = replace(text, int(pair[0]), int(pair[1]), first + number)
    return text

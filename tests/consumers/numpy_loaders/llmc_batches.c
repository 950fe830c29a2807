// pattern B T rank ranks batches: inputs and targets of so many batches, int32, as llm.c's own loader gives them.
#include "llmc/dataloader.h"

int main(int count, char **words) {
    DataLoader loader;
    size_t B = atoi(words[2]), T = atoi(words[3]);
    (void)count;
    dataloader_init(&loader, words[1], B, T, atoi(words[4]), atoi(words[5]), 0);
    for (int left = atoi(words[6]); left; left--) {
        dataloader_next_batch(&loader);
        fwrite(loader.inputs, sizeof(int), B * T, stdout);
        fwrite(loader.targets, sizeof(int), B * T, stdout);
    }
    return 0;
}

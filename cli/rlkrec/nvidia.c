/* The NVIDIA driver and its GPUs from /proc: no library, no initialisation, works before and without CUDA. */
#include "cli/common/rlk_output.h"
#include "cli/rlkrec/manifest.h"

#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#define PROC "/proc/driver/nvidia"

json_t *rlki_nvidia_driver(void)
{
    char line[512];
    json_t *version = NULL;
    FILE *file = fopen(PROC "/version", "re");

    /* "NVRM version: NVIDIA UNIX ... Kernel Module  580.65.06  date": the first word that looks like a version */
    if (file && fgets(line, sizeof line, file)) {
        for (char *word = strtok(line, " \t\n"); word && !version; word = strtok(NULL, " \t\n"))
            if (isdigit((unsigned char)word[0]) && strchr(word, '.') && strspn(word, "0123456789.") == strlen(word))
                version = json_string(word);
    }
    if (file)
        fclose(file);
    return version ? version : json_null();
}

static char *value_of(char *line, const char *key)
{
    size_t n = strlen(key);
    char *value;

    if (strncmp(line, key, n) != 0 || line[n] != ':')
        return NULL;
    value = line + n + 1;
    value += strspn(value, " \t");
    value[strcspn(value, "\n")] = 0;
    return value;
}

static json_t *one_gpu(const char *bus)
{
    char path[320], line[256];
    json_t *gpu = json_object();
    FILE *file;

    snprintf(path, sizeof path, PROC "/gpus/%s/information", bus);
    json_object_set_new(gpu, "pci", rlki_json_string(bus));
    file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        char *value;
        if ((value = value_of(line, "Model")))
            json_object_set_new(gpu, "name", rlki_json_string(value));
        else if ((value = value_of(line, "GPU UUID")))
            json_object_set_new(gpu, "uuid", rlki_json_string(value));
    }
    if (file)
        fclose(file);
    return gpu;
}

json_t *rlki_nvidia_gpus(void)
{
    json_t *list = json_array();
    struct dirent **names = NULL;
    int n = scandir(PROC "/gpus", &names, NULL, alphasort);

    for (int i = 0; i < n; i++) {
        if (names[i]->d_name[0] != '.')
            json_array_append_new(list, one_gpu(names[i]->d_name));
        free(names[i]);
    }
    free(names);
    return list;
}

/* A classifier of handwritten digits, trained on several workers: data-parallel training with nothing hidden.
 *
 *     digits [DATA [WORKERS]]
 *
 * Every worker holds the same network, works out the gradient on its own share of a batch, and averages it with
 * the others'; so all take the same step. The network has one hidden layer; its passes, forward and backward,
 * are six matrix products (OpenBLAS). Of the 1,797 images 360 are held out for the test. */
#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trainyard/trainyard.h>
#include <unistd.h>

enum { IMAGES = 1797, TRAIN = 1437, PIXELS = 64, HIDDEN = 64, CLASSES = 10, BATCH = 32, EPOCHS = 30 };

struct digits_config {
    char data[4096];
};

/* Everything that is learned, in one block: one all-reduce averages it. A gradient has the same shape. */
struct network {
    float w1[PIXELS][HIDDEN], b1[HIDDEN];
    float w2[HIDDEN][CLASSES], b2[CLASSES];
};
enum { PARAMETERS = sizeof(struct network) / sizeof(float) };

static float pixels[IMAGES][PIXELS];
static int labels[IMAGES];
static struct network network, gradient, velocity;
static float hidden[IMAGES][HIDDEN], scores[IMAGES][CLASSES], d_hidden[BATCH][HIDDEN];

static unsigned random_state = 1998;

static unsigned random_number(void) { /* the same on every machine and in every worker */
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 8;
}

/* Reads the images and shuffles them, always the same way: the writers are in order in the file. */
static int load_images(const char *path) {
    FILE *file = fopen(path, "r");
    int good = file != NULL;
    for (int i = 0; good && i < IMAGES; i++) {
        for (int j = 0; j < PIXELS; j++)
            good = good && fscanf(file, "%f,", &pixels[i][j]) == 1;
        good = good && fscanf(file, "%d", &labels[i]) == 1 && labels[i] >= 0 && labels[i] < CLASSES;
        cblas_sscal(PIXELS, 1 / 16.0f, pixels[i], 1);
    }
    if (!good) fprintf(stderr, "%s does not hold the %d images\n", path, IMAGES);
    if (file != NULL) fclose(file);
    for (int i = IMAGES - 1; good && i > 0; i--) {
        int j = (int)(random_number() % (unsigned)(i + 1)), label = labels[i];
        cblas_sswap(PIXELS, pixels[i], 1, pixels[j], 1);
        labels[i] = labels[j];
        labels[j] = label;
    }
    return good;
}

static void start_weights(float *weights, int n, int inputs) {
    for (int i = 0; i < n; i++)
        weights[i] = ((float)random_number() / (1 << 24) - 0.5f) * 2 * sqrtf(6.0f / (float)inputs);
}

/* hidden = max(0, x w1 + b1); scores = softmax(hidden w2 + b2). */
static void forward(const float (*x)[PIXELS], int n) {
    for (int i = 0; i < n; i++) {
        memcpy(hidden[i], network.b1, sizeof network.b1);
        memcpy(scores[i], network.b2, sizeof network.b2);
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, HIDDEN, PIXELS, 1, x[0], PIXELS, network.w1[0],
                HIDDEN, 1, hidden[0], HIDDEN);
    for (int i = 0; i < n; i++)
        for (int h = 0; h < HIDDEN; h++)
            hidden[i][h] = fmaxf(hidden[i][h], 0);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, CLASSES, HIDDEN, 1, hidden[0], HIDDEN,
                network.w2[0], CLASSES, 1, scores[0], CLASSES);
    for (int i = 0; i < n; i++) {
        float sum = 0;
        for (int c = 0; c < CLASSES; c++)
            sum += scores[i][c] = expf(fminf(scores[i][c], 60));
        cblas_sscal(CLASSES, 1 / sum, scores[i], 1);
    }
}

/* The gradient of the mean cross-entropy over a batch of which `forward` has just been run; returns that
 * mean. */
static float backward(const float (*x)[PIXELS], const int *y, int n) {
    float loss = 0;
    memset(&gradient, 0, sizeof gradient);
    for (int i = 0; i < n; i++) {
        loss -= logf(scores[i][y[i]] + 1e-12f) / (float)n;
        scores[i][y[i]] -= 1; /* what softmax and cross-entropy come to together */
        cblas_sscal(CLASSES, 1 / (float)n, scores[i], 1);
        cblas_saxpy(CLASSES, 1, scores[i], 1, gradient.b2, 1);
    }
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, HIDDEN, CLASSES, n, 1, hidden[0], HIDDEN, scores[0],
                CLASSES, 0, gradient.w2[0], CLASSES);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, HIDDEN, CLASSES, 1, scores[0], CLASSES,
                network.w2[0], CLASSES, 0, d_hidden[0], HIDDEN);
    for (int i = 0; i < n; i++) {
        for (int h = 0; h < HIDDEN; h++)
            if (hidden[i][h] <= 0) d_hidden[i][h] = 0;
        cblas_saxpy(HIDDEN, 1, d_hidden[i], 1, gradient.b1, 1);
    }
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, PIXELS, HIDDEN, n, 1, x[0], PIXELS, d_hidden[0],
                HIDDEN, 0, gradient.w1[0], HIDDEN);
    return loss;
}

/* One pass over the training images; the mean loss over all workers, negative after an error. */
static float train_epoch(ty_worker *worker, int epoch, ty_error *err) {
    int rank = ty_world_rank(worker), steps = TRAIN / (BATCH * ty_world_size(worker));
    float *v = (float *)&velocity, *g = (float *)&gradient, *p = (float *)&network, loss = 0;
    float rate = 0.1f * (1 - (float)epoch / EPOCHS);
    for (int step = 0; step < steps; step++) {
        int first = (step * ty_world_size(worker) + rank) * BATCH;
        forward((const float(*)[PIXELS])pixels[first], BATCH);
        loss += backward((const float(*)[PIXELS])pixels[first], &labels[first], BATCH) / (float)steps;
        if (ty_all_reduce(ty_comm(worker), g, PARAMETERS, TY_FLOAT32, TY_MEAN, err) < 0) return -1;
        cblas_sscal(PARAMETERS, 0.9f, v, 1);
        cblas_saxpy(PARAMETERS, -rate, g, 1, v, 1);
        cblas_saxpy(PARAMETERS, 1, v, 1, p, 1);
    }
    return ty_all_reduce(ty_comm(worker), &loss, 1, TY_FLOAT32, TY_MEAN, err) < 0 ? -1 : loss;
}

/* The share of test images that are told right. */
static double test_accuracy(void) {
    int right = 0;
    forward((const float(*)[PIXELS])pixels[TRAIN], IMAGES - TRAIN);
    for (int i = 0; i < IMAGES - TRAIN; i++)
        right += (int)cblas_isamax(CLASSES, scores[i], 1) == labels[TRAIN + i];
    return (double)right / (IMAGES - TRAIN);
}

/* Rank 0 hands over the network with its report; the others only report. */
static int report(ty_worker *worker, int epoch, float loss, ty_error *err) {
    char directory[] = "/tmp/digits-XXXXXX", path[64];
    double accuracy = test_accuracy();
    ty_metrics metrics = TY_METRICS({"epoch", epoch}, {"loss", loss}, {"accuracy", accuracy});
    if (ty_world_rank(worker) != 0 || epoch % 10 != 0) return ty_report(worker, metrics, NULL, err);
    printf("epoch %d: loss %.4f, test accuracy %.1f%%\n", epoch, loss, 100 * accuracy);
    if (mkdtemp(directory) == NULL) return -1;
    snprintf(path, sizeof path, "%s/network.f32", directory);
    FILE *file = fopen(path, "wb");
    int good = file != NULL && fwrite(&network, sizeof network, 1, file) == 1;
    if (file != NULL) good = fclose(file) == 0 && good;
    int rc = good ? ty_report(worker, metrics, directory, err) : -1;
    unlink(path);
    rmdir(directory);
    return rc;
}

static int train(ty_worker *worker, const void *config, size_t config_size) {
    (void)config_size;
    ty_error err = {0};
    if (!load_images(((const struct digits_config *)config)->data)) return 1;
    start_weights((float *)network.w1, PIXELS * HIDDEN, PIXELS);
    start_weights((float *)network.w2, HIDDEN * CLASSES, HIDDEN);
    int rc = ty_broadcast(ty_comm(worker), &network, PARAMETERS, TY_FLOAT32, 0, &err);
    for (int epoch = 1; rc >= 0 && epoch <= EPOCHS; epoch++) {
        float loss = train_epoch(worker, epoch - 1, &err);
        rc = loss >= 0 ? report(worker, epoch, loss, &err) : -1;
    }
    if (rc < 0) fprintf(stderr, "%s\n", err.message);
    return rc < 0;
}

/* DATA, else data/digits.csv beside this program. */
static void find_data(const char *argument, struct digits_config *config) {
    if (argument != NULL) {
        snprintf(config->data, sizeof config->data, "%s", argument);
        return;
    }
    ssize_t n = readlink("/proc/self/exe", config->data, sizeof config->data - 32);
    while (n > 0 && config->data[n - 1] != '/')
        n--;
    snprintf(config->data + (n > 0 ? n : 0), 32, "data/digits.csv");
}

int main(int argc, char **argv) {
    ty_init(&argc, &argv);
    struct digits_config config = {0};
    find_data(argc > 1 ? argv[1] : NULL, &config);
    ty_scaling_config scaling = {.num_workers = argc > 2 ? atoi(argv[2]) : 4,
                                 .resources_per_worker = TY_RESOURCES({"CPU", 0.25})};
    ty_trainer_config trainer = {
        .train = train, .config = &config, .config_size = sizeof config, .scaling = &scaling};
    ty_result *result = NULL;
    ty_error err = {0};
    double accuracy = 0, loss = 0;
    int rc = ty_fit(&trainer, &result, &err);
    if (rc < 0) {
        fprintf(stderr, "digits: %s\n", err.message);
    } else {
        ty_result_metric(result, "loss", &loss);
        ty_result_metric(result, "accuracy", &accuracy);
        printf("%d workers, %d epochs: loss %.4f, test accuracy %.1f%%; checkpoint: %s\n",
               ty_result_num_workers(result), EPOCHS, loss, 100 * accuracy, ty_result_checkpoint(result));
    }
    ty_result_free(result);
    return ty_error_exit_status(rc);
}

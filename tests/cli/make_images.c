/* Small pictures for the scripts: make_images FOLDER N CLASSES [SIZE]: FOLDER/cK_I.jpg, each with its class's colours. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define STB_IMAGE_WRITE_STATIC
#define STB_IMAGE_WRITE_IMPLEMENTATION
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#include <stb/stb_image_write.h>

int main(int argc, char **argv)
{
	int n = argc > 2 ? atoi(argv[2]) : 0, classes = argc > 3 ? atoi(argv[3]) : 1, size = argc > 4 ? atoi(argv[4]) : 64;
	unsigned char *p;

	if (n < 1 || classes < 1 || size < 1 || size > 4096)
		return 2;
	p = malloc((size_t)size * (size_t)size * 12);
	if (!p)
		return 1;
	for (int i = 0; i < n; i++) {
		int k = i % classes, w = size + i * 7 % (size / 2 + 1), h = size + i * 5 % (size / 2 + 1);
		char path[4096];

		for (int y = 0; y < h; y++)
			for (int x = 0; x < w; x++)
				for (int c = 0; c < 3; c++)
					p[(y * w + x) * 3 + c] = (unsigned char)(128 + 60 * sin(.1 * (k + 1) * x + c + .3 * i) +
										 60 * cos(.7 * k + 2 * c));
		snprintf(path, sizeof(path), "%s/c%d_%d.jpg", argv[1], k, i);
		if (!stbi_write_jpg(path, w, h, 3, p, 90))
			return 1;
	}
	free(p);
	return 0;
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * vulkan.c: how much of the GPU's memory a program gets by Vulkan: vulkan MIB prints "N MiB", or what
 * failed. */
#include <vulkan/vulkan.h>

#include "other.h"

#define NVIDIA 0x10deu

static VkPhysicalDevice gpu_of_nvidia(VkInstance instance)
{
	VkPhysicalDevice devices[8];
	VkPhysicalDeviceProperties properties;
	uint32_t count = 8;

	if (vkEnumeratePhysicalDevices(instance, &count, devices) < 0)
		return VK_NULL_HANDLE;
	for (uint32_t i = 0; i < count; i++) {
		vkGetPhysicalDeviceProperties(devices[i], &properties);
		if (properties.vendorID == NVIDIA)
			return devices[i];
	}
	return VK_NULL_HANDLE;
}

static uint32_t type_on_the_gpu(VkPhysicalDevice gpu)
{
	VkPhysicalDeviceMemoryProperties memory;
	uint32_t i = 0;

	vkGetPhysicalDeviceMemoryProperties(gpu, &memory);
	while (i < memory.memoryTypeCount &&
	       !(memory.memoryTypes[i].propertyFlags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT))
		i++;
	return i;
}

int main(int argc, char **argv)
{
	const unsigned wanted = wanted_mib(argc, argv);
	const float priority = 1;
	const VkInstanceCreateInfo about = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
	const VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
					       .queueCount = 1,
					       .pQueuePriorities = &priority};
	const VkDeviceCreateInfo with = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
					 .queueCreateInfoCount = 1,
					 .pQueueCreateInfos = &queue};
	VkInstance instance;
	VkDevice device;
	VkDeviceMemory block;
	unsigned got = 0;

	if (vkCreateInstance(&about, NULL, &instance) != VK_SUCCESS)
		return nothing("no instance");
	VkPhysicalDevice gpu = gpu_of_nvidia(instance);
	if (gpu == VK_NULL_HANDLE)
		return nothing("no GPU of NVIDIA's");
	if (vkCreateDevice(gpu, &with, NULL, &device) != VK_SUCCESS)
		return nothing("no device");
	const VkMemoryAllocateInfo piece = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
					    .allocationSize = PIECE_BYTES,
					    .memoryTypeIndex = type_on_the_gpu(gpu)};
	while (got < wanted && vkAllocateMemory(device, &piece, NULL, &block) == VK_SUCCESS)
		got += PIECE_MIB;
	return hold(got);
}
